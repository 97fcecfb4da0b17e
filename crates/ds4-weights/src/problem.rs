//! What can be wrong with a weight file, one variant a fault, so that all faults can be listed together.

use std::fmt;
use std::ops::Range;

use thiserror::Error;

/// A fault and the file it is in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}: {kind}")]
pub struct Problem {
    /// File name inside the model's folder.
    pub file: String,
    /// The fault.
    pub kind: ProblemKind,
}

/// A fault of a safetensors file or of the index that names it. Offsets count from the end of the header.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Shorter than the eight bytes that give the header's length.
    #[error(
        "only {bytes} bytes long; a safetensors file starts with an 8-byte header length (download it again)"
    )]
    TooShort {
        /// Size of the file.
        bytes: u64,
    },
    /// The header length is larger than the format allows.
    #[error(
        "claims a header of {header} bytes, more than the {limit} the format allows; not a safetensors file?"
    )]
    HeaderTooLarge {
        /// Claimed length.
        header: u64,
        /// The limit.
        limit: u64,
    },
    /// The header reaches past the end of the file.
    #[error(
        "claims a header of {header} bytes in a file of {bytes}; the file is cut short (download it again)"
    )]
    HeaderPastEnd {
        /// Claimed length.
        header: u64,
        /// Size of the file.
        bytes: u64,
    },
    /// The header is not text.
    #[error("the header is not UTF-8 from byte {valid_up_to} on; not a safetensors file?")]
    NotUtf8 {
        /// Bytes that were still text.
        valid_up_to: usize,
    },
    /// The header is not the JSON that the format asks for.
    #[error("the header is not an object of tensor descriptions (line {line}, column {column}: {message})")]
    BadJson {
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault.
        column: usize,
        /// What the JSON parser says.
        message: String,
    },
    /// A description lacks a field, or has it with the wrong type.
    #[error("tensor `{tensor}`: field `{field}` is missing or is not {expected}")]
    BadField {
        /// Full name of the tensor.
        tensor: String,
        /// `dtype`, `shape` or `data_offsets`.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// A description has a field that the format does not know, or one twice.
    #[error("tensor `{tensor}`: field `{field}` is unknown or given twice")]
    SurplusField {
        /// Full name of the tensor.
        tensor: String,
        /// The field.
        field: String,
    },
    /// Two descriptions with one name in one file.
    #[error("tensor `{tensor}` is described twice")]
    DuplicateName {
        /// Full name of the tensor.
        tensor: String,
    },
    /// A tensor that an earlier file has too.
    #[error("tensor `{tensor}` is also in {other}; remove the file that does not belong to this model")]
    DuplicateAcrossFiles {
        /// Full name of the tensor.
        tensor: String,
        /// The file that was read first.
        other: String,
    },
    /// Offsets in the wrong order.
    #[error("tensor `{tensor}`: its data ends at {end}, before it begins at {begin}")]
    ReversedOffsets {
        /// Full name of the tensor.
        tensor: String,
        /// First byte.
        begin: u64,
        /// End, exclusive.
        end: u64,
    },
    /// Data past the end of the file.
    #[error(
        "tensor `{tensor}`: its data ends at {end}, but the file has {available} bytes of data; the file is cut short or its header wrong (download it again)"
    )]
    PastEnd {
        /// Full name of the tensor.
        tensor: String,
        /// End, exclusive.
        end: u64,
        /// Bytes after the header.
        available: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap")]
    Overlap {
        /// The one that begins earlier.
        first: String,
        /// The one that begins inside it.
        second: String,
    },
    /// Bytes that belong to no tensor, which the format forbids.
    #[error("bytes {} to {} of the data belong to no tensor", range.start, range.end)]
    Hole {
        /// The unused bytes.
        range: Range<u64>,
    },
    /// Shape and element type do not give the length of the data.
    #[error("tensor `{tensor}`: {dtype} of shape {shape:?} needs {expected} bytes, but {actual} are stored")]
    WrongSize {
        /// Full name of the tensor.
        tensor: String,
        /// Element type as written in the header.
        dtype: String,
        /// Shape from the header.
        shape: Vec<u64>,
        /// Bytes by shape and type.
        expected: u64,
        /// Bytes by the offsets.
        actual: u64,
    },
    /// A shape whose size this machine cannot count.
    #[error("tensor `{tensor}`: shape {shape:?} has more elements than this machine can address")]
    ShapeOverflow {
        /// Full name of the tensor.
        tensor: String,
        /// Shape from the header.
        shape: Vec<u64>,
    },
    /// Metadata that is not text.
    #[error("`__metadata__` entry `{key}` is not text")]
    BadMetadata {
        /// The key.
        key: String,
    },
    /// The index is not what it should be.
    #[error("is not an index of weight files: {fault}")]
    BadIndex {
        /// What is wrong.
        fault: IndexFault,
    },
    /// A file that the index names is not there.
    #[error("is named by the index but missing; download it, it holds {tensors} tensors")]
    FileMissing {
        /// How many tensors the index places in it.
        tensors: usize,
    },
    /// A tensor is not in the file that the index gives.
    #[error(
        "tensor `{tensor}` is not in it, though the index says so; index and files are from different downloads"
    )]
    NotInFile {
        /// Full name of the tensor.
        tensor: String,
    },
}

/// What is wrong with `model.safetensors.index.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexFault {
    /// Not JSON, or without a `weight_map` of names to file names.
    Json {
        /// What the JSON parser says.
        message: String,
    },
    /// A file name that leads out of the folder or is not a safetensors file.
    FileName {
        /// The name.
        name: String,
    },
}

impl fmt::Display for IndexFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { message } => f.write_str(message),
            Self::FileName { name } => write!(f, "`{name}` is not the plain name of a .safetensors file"),
        }
    }
}
