//! Errors of reading and of writing weights.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use ds4_dtype::DType;
use thiserror::Error;

use crate::Problem;

/// Why a model's files cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The folder is not there or is a file.
    #[error("{} is not a folder; give the folder that holds config.json and the .safetensors files", path.display())]
    NotAFolder {
        /// What was given.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// A folder without weights.
    #[error(
        "{model} has no weight files; expected model.safetensors, or model.safetensors.index.json and the files it names"
    )]
    NoWeightFiles {
        /// The model's name or folder.
        model: String,
    },
    /// Files that contradict themselves or each other. All faults of all files.
    #[error("the weight files of {model} cannot be used, {} found:\n{}", count(problems), list(problems))]
    Invalid {
        /// The model's name or folder.
        model: String,
        /// At least one.
        problems: Vec<Problem>,
    },
    /// A tensor somebody needs is in none of the files.
    #[error("tensor `{tensor}` is missing from {model}")]
    MissingTensor {
        /// The model's name or folder.
        model: String,
        /// Full name of the tensor.
        tensor: String,
    },
    /// A tensor somebody needs has an element type that cannot be computed with.
    #[error(
        "tensor `{tensor}` of {model} is stored as {dtype}, which is not supported; use a checkpoint in BF16, F16, F32 or affine 4/8 bits"
    )]
    UnsupportedDType {
        /// The model's name or folder.
        model: String,
        /// Full name of the tensor.
        tensor: String,
        /// Its type as named in the file.
        dtype: String,
    },
}

/// Why weights cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Two tensors of one name were announced.
    #[error("tensor `{tensor}` was announced twice")]
    DuplicateName {
        /// The name.
        tensor: String,
    },
    /// Data for a tensor that was never announced.
    #[error("tensor `{tensor}` was not announced when the file was created")]
    UnknownTensor {
        /// The name.
        tensor: String,
    },
    /// Elements of another type than announced.
    #[error("tensor `{tensor}` was announced as {announced}, but {given} elements were given")]
    WrongType {
        /// The name.
        tensor: String,
        /// The announced type.
        announced: DType,
        /// What was given.
        given: DType,
    },
    /// More data than the shape holds.
    #[error("tensor `{tensor}` holds {expected} bytes, but {given} were given")]
    TooMuchData {
        /// The name.
        tensor: String,
        /// Bytes by shape and type.
        expected: u64,
        /// Bytes given so far.
        given: u64,
    },
    /// The file was finished before all data had come.
    #[error("tensor `{tensor}` holds {expected} bytes, but only {given} were given")]
    Incomplete {
        /// The name.
        tensor: String,
        /// Bytes by shape and type.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// A shape whose size cannot be counted.
    #[error("tensor `{tensor}` of shape {shape:?} is too large to write")]
    ShapeOverflow {
        /// The name.
        tensor: String,
        /// The shape.
        shape: Vec<usize>,
    },
}

/// Faults past this many are counted, not printed: a file cut short has one for every tensor.
const PRINTED: usize = 100;

fn count(problems: &[Problem]) -> String {
    match problems.len() {
        1 => "one fault".to_owned(),
        n => format!("{n} faults"),
    }
}

fn list(problems: &[Problem]) -> String {
    let mut text = String::new();
    for (i, problem) in problems.iter().take(PRINTED).enumerate() {
        let line_end = if i == 0 { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{line_end}  {problem}");
    }
    if problems.len() > PRINTED {
        let _ = write!(text, "\n  and {} more", problems.len() - PRINTED);
    }
    text
}
