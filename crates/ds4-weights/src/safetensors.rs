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

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of this header and `data_len` bytes of data.
    fn file(header: &str, data_len: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend(std::iter::repeat_n(7, data_len));
        file
    }

    fn problems(header: &str, data_len: usize) -> Vec<ProblemKind> {
        parse_header(&file(header, data_len)).unwrap_err()
    }

    fn tensor(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn a_sound_header_is_read() {
        let text = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},
            "a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},
            "none":{"dtype":"F32","shape":[0,5],"data_offsets":[20,20]}}"#;
        let header = parse_header(&file(text, 20)).unwrap();
        assert_eq!(header.metadata, [("format".to_owned(), "pt".to_owned())]);
        let start = 8 + text.len();
        let entries: Vec<_> =
            header.entries.iter().map(|e| (e.name.as_str(), e.shape.as_slice(), e.range.clone())).collect();
        assert_eq!(
            entries,
            [
                ("b", &[2, 3][..], start + 8..start + 20),
                ("a", &[][..], start..start + 8),
                ("none", &[0, 5][..], start + 20..start + 20),
            ]
        );
    }

    #[test]
    fn a_file_without_tensors_is_sound() {
        assert!(parse_header(&file("{}", 0)).unwrap().entries.is_empty());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert_eq!(parse_header(b"1234567").unwrap_err(), [ProblemKind::TooShort { bytes: 7 }]);
        let mut long = file("{}", 0);
        long[..8].copy_from_slice(&3u64.to_le_bytes());
        assert_eq!(parse_header(&long).unwrap_err(), [ProblemKind::HeaderPastEnd { header: 3, bytes: 10 }]);
        for header in [100_000_001, u64::MAX] {
            long[..8].copy_from_slice(&header.to_le_bytes());
            let expected = ProblemKind::HeaderTooLarge { header, limit: 100_000_000 };
            assert_eq!(parse_header(&long).unwrap_err(), [expected]);
        }
    }

    #[test]
    fn a_header_that_is_not_json_text_is_refused() {
        let mut file = file(r#"{"aa":1}"#, 0);
        file[11] = 0xFF;
        assert_eq!(parse_header(&file).unwrap_err(), [ProblemKind::NotUtf8 { valid_up_to: 3 }]);
        for header in ["", "{", "[]", "null", r#"{"a":3}"#, "{} {}", r#"{"a":{"dtype":"F32",}}"#] {
            let found = problems(header, 0);
            assert!(matches!(found[..], [ProblemKind::BadJson { line: 1, .. }]), "{header}: {found:?}");
        }
        let deep = format!("{}{}", r#"{"a":{"b":"#, "[".repeat(100_000));
        assert!(matches!(problems(&deep, 0)[..], [ProblemKind::BadJson { .. }]));
    }

    #[test]
    fn fields_must_be_there_and_of_their_type() {
        let found = problems(r#"{"a":{"shape":[-1],"data_offsets":[0],"x":1,"shape":[1]}}"#, 0);
        let bad = |field, expected| ProblemKind::BadField { tensor: tensor("a"), field, expected };
        let surplus =
            |field: &str| ProblemKind::SurplusField { tensor: tensor("a"), field: field.to_owned() };
        assert_eq!(
            found,
            [
                surplus("x"),
                surplus("shape"),
                bad("dtype", "the name of a number format"),
                bad("data_offsets", "a pair of byte positions"),
            ]
        );
        let found = problems(r#"{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}"#, 4);
        assert_eq!(found, [bad("shape", "a list of sizes")]);
        let found = problems(r#"{"__metadata__":{"n":1}}"#, 0);
        assert_eq!(found, [ProblemKind::BadMetadata { key: "n".to_owned() }]);
    }

    #[test]
    fn two_tensors_of_one_name_are_refused() {
        let one = r#""a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
        assert_eq!(
            problems(&format!("{{{one},{one}}}"), 1),
            [ProblemKind::DuplicateName { tensor: tensor("a") }]
        );
    }

    #[test]
    fn offsets_must_lie_in_the_file_and_in_order() {
        let at = |begin: u64, end: u64| {
            let size = end.abs_diff(begin);
            problems(
                &format!(r#"{{"a":{{"dtype":"U8","shape":[{size}],"data_offsets":[{begin},{end}]}}}}"#),
                4,
            )
        };
        assert_eq!(at(3, 1), [ProblemKind::ReversedOffsets { tensor: tensor("a"), begin: 3, end: 1 }]);
        assert_eq!(at(0, 5), [ProblemKind::PastEnd { tensor: tensor("a"), end: 5, available: 4 }]);
        let end = u64::MAX;
        assert_eq!(at(end - 1, end), [ProblemKind::PastEnd { tensor: tensor("a"), end, available: 4 }]);
    }

    #[test]
    fn tensors_cover_the_data_exactly_once() {
        let two = |first: [u64; 2], second: [u64; 2]| {
            let entry = |name: &str, [begin, end]: [u64; 2]| {
                let size = end - begin;
                format!(r#""{name}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{begin},{end}]}}"#)
            };
            problems(&format!("{{{},{}}}", entry("a", first), entry("b", second)), 10)
        };
        let hole = |range| ProblemKind::Hole { range };
        let overlap = |first, second| ProblemKind::Overlap { first: tensor(first), second: tensor(second) };
        assert_eq!(two([0, 4], [5, 10]), [hole(4..5)]);
        assert_eq!(two([1, 4], [4, 9]), [hole(0..1), hole(9..10)]);
        assert_eq!(two([4, 10], [0, 5]), [overlap("b", "a")]);
        assert_eq!(two([0, 10], [2, 3]), [overlap("a", "b")]);
        assert_eq!(two([0, 10], [0, 10]), [overlap("a", "b")]);
    }

    #[test]
    fn shape_and_type_must_give_the_length() {
        let of = |dtype: &str, shape: &str| {
            let header = format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,8]}}}}"#);
            parse_header(&file(&header, 8))
        };
        assert!(of("F32", "[2]").is_ok());
        assert!(of("F4", "[4,4]").is_ok());
        assert_eq!(
            of("BF16", "[3]").unwrap_err(),
            [ProblemKind::WrongSize {
                tensor: tensor("a"),
                dtype: "BF16".to_owned(),
                shape: vec![3],
                expected: 6,
                actual: 8
            }]
        );
        assert!(matches!(
            of("F8_E4M3", "[9]").unwrap_err()[..],
            [ProblemKind::WrongSize { expected: 9, .. }]
        ));
        assert!(matches!(of("F32", "[]").unwrap_err()[..], [ProblemKind::WrongSize { expected: 4, .. }]));
        for shape in ["[4294967296,4294967296]", "[18446744073709551615,2]", "[0,9223372036854775808,2]"] {
            let found = of("U8", shape).unwrap_err();
            assert!(matches!(found[..], [ProblemKind::ShapeOverflow { .. }]), "{shape}: {found:?}");
        }
        // A number too large for u64 is not a size.
        assert!(matches!(
            of("U8", "[18446744073709551616]").unwrap_err()[..],
            [ProblemKind::BadField { field: "shape", .. }]
        ));
    }

    #[test]
    fn an_unsupported_type_is_no_fault() {
        let text = r#"{"a":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[0,3]},
                       "b":{"dtype":"X","shape":[3],"data_offsets":[3,4]}}"#;
        let header = parse_header(&file(text, 4)).unwrap();
        assert_eq!(header.entries[0].dtype, ElementType::Unsupported("F8_E5M2".to_owned()));
        assert_eq!(header.entries[1].dtype, ElementType::Unsupported("X".to_owned()));
    }

    #[test]
    fn all_faults_are_listed() {
        let found = problems(
            r#"{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},
                "b":{"dtype":"U8","shape":[2],"data_offsets":[1,0]},
                "c":{"dtype":7,"shape":[],"data_offsets":[0,1]}}"#,
            1,
        );
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
