//! The header of a safetensors file, read strictly.
//!
//! Layout: a little-endian u64 with the header's length, the header (a JSON object from tensor name to `dtype`,
//! `shape` and `data_offsets`, plus an optional `__metadata__` of texts), then the data, which the tensors must cover
//! without gap or overlap. Nothing here looks at the data itself.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use ds4_dtype::DType;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::ProblemKind;

/// The format's own limit for the JSON, 100 MB.
const HEADER_LIMIT: u64 = 100_000_000;
/// Bytes of the length field.
const PREFIX: usize = 8;

/// A header whose descriptions agree with each other and with the size of the file.
#[derive(Clone, Debug)]
pub struct Header {
    /// Tensors in the order of the header.
    pub entries: Vec<HeaderEntry>,
    /// Free texts, usually `format: pt`.
    pub metadata: Vec<(String, String)>,
}

/// One tensor's description.
#[derive(Clone, Debug)]
pub struct HeaderEntry {
    /// Full name.
    pub name: String,
    /// Type of an element.
    pub dtype: ElementType,
    /// Sizes of the dimensions, outermost first. Empty for a single value.
    pub shape: Vec<usize>,
    /// Bytes of the data, counted from the start of the file.
    pub range: Range<usize>,
}

/// An element type as a file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// One that arrays support.
    Supported(DType),
    /// Any other. Not an error before somebody wants the tensor.
    Unsupported(String),
}

impl ElementType {
    fn from_name(name: &str) -> Self {
        DType::from_name(name).map_or_else(|| Self::Unsupported(name.to_owned()), Self::Supported)
    }

    /// Bits of one element, where known.
    fn bits(&self) -> Option<u64> {
        match self {
            Self::Supported(dtype) => Some(dtype.size() as u64 * 8),
            Self::Unsupported(name) => match name.as_str() {
                "F4" => Some(4),
                "F6_E2M3" | "F6_E3M2" => Some(6),
                "BOOL" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(8),
                "I16" | "U16" => Some(16),
                "U64" | "F64" | "C64" => Some(64),
                _ => None,
            },
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supported(dtype) => dtype.fmt(f),
            Self::Unsupported(name) => f.write_str(name),
        }
    }
}

/// Reads and checks the header of `file`, the bytes of a whole safetensors file.
///
/// # Errors
/// Every fault that can be told apart, not just the first.
pub fn parse_header(file: &[u8]) -> Result<Header, Vec<ProblemKind>> {
    let (json, data_start) = header_text(file).map_err(|problem| vec![problem])?;
    let Pairs(descriptions): Pairs<Pairs<Value>> = serde_json::from_str(json).map_err(|error| {
        vec![ProblemKind::BadJson { line: error.line(), column: error.column(), message: error.to_string() }]
    })?;

    let mut problems = Vec::new();
    let mut header = Header { entries: Vec::new(), metadata: Vec::new() };
    let mut seen = HashSet::new();
    for (name, fields) in descriptions {
        if name == "__metadata__" {
            read_metadata(fields, &mut header.metadata, &mut problems);
        } else if !seen.insert(name.clone()) {
            problems.push(ProblemKind::DuplicateName { tensor: name });
        } else if let Some(description) = Description::read(name, fields, &mut problems) {
            header.entries.extend(description.check(data_start, file.len(), &mut problems));
        }
    }
    // Gaps next to a rejected description would be reported as faults of their own.
    if problems.is_empty() {
        check_coverage(&header.entries, data_start..file.len(), &mut problems);
    }
    if problems.is_empty() { Ok(header) } else { Err(problems) }
}

/// The JSON text and where the data begins.
fn header_text(file: &[u8]) -> Result<(&str, usize), ProblemKind> {
    let bytes = file.len() as u64;
    let (prefix, rest) = file.split_first_chunk::<PREFIX>().ok_or(ProblemKind::TooShort { bytes })?;
    let header = u64::from_le_bytes(*prefix);
    if header > HEADER_LIMIT {
        return Err(ProblemKind::HeaderTooLarge { header, limit: HEADER_LIMIT });
    }
    // Fits: the limit is far below the smallest usize in use.
    let length = header as usize;
    let text = rest.get(..length).ok_or(ProblemKind::HeaderPastEnd { header, bytes })?;
    let text = std::str::from_utf8(text)
        .map_err(|error| ProblemKind::NotUtf8 { valid_up_to: error.valid_up_to() })?;
    Ok((text, PREFIX + length))
}

fn read_metadata(fields: Pairs<Value>, out: &mut Vec<(String, String)>, problems: &mut Vec<ProblemKind>) {
    for (key, value) in fields.0 {
        match value {
            Value::String(text) => out.push((key, text)),
            _ => problems.push(ProblemKind::BadMetadata { key }),
        }
    }
}

/// A tensor's description with its fields typed, but not yet checked against each other.
struct Description {
    name: String,
    dtype: ElementType,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

impl Description {
    fn read(name: String, fields: Pairs<Value>, problems: &mut Vec<ProblemKind>) -> Option<Self> {
        let before = problems.len();
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        for (field, value) in fields.0 {
            let slot = match field.as_str() {
                "dtype" => &mut dtype,
                "shape" => &mut shape,
                "data_offsets" => &mut offsets,
                _ => {
                    problems.push(ProblemKind::SurplusField { tensor: name.clone(), field });
                    continue;
                }
            };
            if slot.replace(value).is_some() {
                problems.push(ProblemKind::SurplusField { tensor: name.clone(), field });
            }
        }
        let mut missing = |field, expected| {
            problems.push(ProblemKind::BadField { tensor: name.clone(), field, expected });
        };
        let dtype = dtype.as_ref().and_then(Value::as_str).map(ElementType::from_name);
        if dtype.is_none() {
            missing("dtype", "the name of a number format");
        }
        let shape = shape.as_ref().and_then(unsigned_numbers);
        if shape.is_none() {
            missing("shape", "a list of sizes");
        }
        let offsets = offsets.as_ref().and_then(unsigned_numbers).and_then(|o| <[u64; 2]>::try_from(o).ok());
        if offsets.is_none() {
            missing("data_offsets", "a pair of byte positions");
        }
        if problems.len() > before {
            return None;
        }
        let (dtype, shape, [begin, end]) = (dtype?, shape?, offsets?);
        Some(Self { name, dtype, shape, begin, end })
    }

    fn check(
        self,
        data_start: usize,
        file_len: usize,
        problems: &mut Vec<ProblemKind>,
    ) -> Option<HeaderEntry> {
        let Self { name: tensor, dtype, shape, begin, end } = self;
        let available = (file_len - data_start) as u64;
        if begin > end {
            problems.push(ProblemKind::ReversedOffsets { tensor, begin, end });
            return None;
        }
        let Some((sizes, bytes)) = size_in_bytes(&shape, dtype.bits()) else {
            problems.push(ProblemKind::ShapeOverflow { tensor, shape });
            return None;
        };
        let actual = end - begin;
        if let Some(expected) = bytes.filter(|&expected| expected != actual) {
            let dtype = dtype.to_string();
            problems.push(ProblemKind::WrongSize { tensor, dtype, shape, expected, actual });
            return None;
        }
        if end > available {
            problems.push(ProblemKind::PastEnd { tensor, end, available });
            return None;
        }
        // Both are at most the length of a slice.
        let range = data_start + begin as usize..data_start + end as usize;
        Some(HeaderEntry { name: tensor, dtype, shape: sizes, range })
    }
}

/// The dimensions as usize and, if the element type is known, the bytes. `None` if either cannot be counted.
///
/// Zero counts as one for this purpose, so that the dimensions of an accepted shape can be multiplied in any order.
fn size_in_bytes(shape: &[u64], bits: Option<u64>) -> Option<(Vec<usize>, Option<u64>)> {
    let sizes = shape.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<Vec<_>>>()?;
    let bound = shape.iter().try_fold(8u64, |product, &d| product.checked_mul(d.max(1)))?;
    let elements = if shape.contains(&0) { 0 } else { bound / 8 };
    let bytes = match bits {
        Some(bits) => {
            bound.checked_mul(bits)?;
            Some((elements * bits).div_ceil(8))
        }
        None => None,
    };
    Some((sizes, bytes))
}

fn unsigned_numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

/// Every byte of `data` must belong to exactly one tensor.
fn check_coverage(entries: &[HeaderEntry], data: Range<usize>, problems: &mut Vec<ProblemKind>) {
    let mut in_order: Vec<&HeaderEntry> = entries.iter().filter(|entry| !entry.range.is_empty()).collect();
    in_order.sort_by_key(|entry| (entry.range.start, entry.range.end));
    let offset = |position: usize| (position - data.start) as u64;
    let mut covered = data.start;
    let mut last: Option<&HeaderEntry> = None;
    for entry in in_order {
        if let Some(last) = last.filter(|_| entry.range.start < covered) {
            let (first, second) = (last.name.clone(), entry.name.clone());
            problems.push(ProblemKind::Overlap { first, second });
        } else if entry.range.start > covered {
            problems.push(ProblemKind::Hole { range: offset(covered)..offset(entry.range.start) });
        }
        if entry.range.end > covered {
            covered = entry.range.end;
            last = Some(entry);
        }
    }
    if covered < data.end {
        problems.push(ProblemKind::Hole { range: offset(covered)..offset(data.end) });
    }
}

/// A JSON object as a list: a map would silently keep only the last of two equal names.
struct Pairs<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for PairsVisitor<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor(std::marker::PhantomData))
    }
}
