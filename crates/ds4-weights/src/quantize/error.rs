//! Why a checkpoint cannot be quantised.

use std::io;
use std::path::PathBuf;

use ds4_dtype::AffineError;
use thiserror::Error;

use crate::{BlockFault, WeightsError, WriteError};

/// Why a checkpoint cannot be quantised.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// Bits or group size without support.
    #[error(transparent)]
    Layout(#[from] AffineError),
    /// The source cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The result cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A weight whose elements cannot be encoded.
    #[error("tensor `{tensor}`, rows from {row}: {source}")]
    Tensor {
        /// Full name.
        tensor: String,
        /// First row of the part with the fault.
        row: usize,
        /// The fault; positions count from that row.
        source: AffineError,
    },
    /// A weight of small floats that cannot be decoded.
    #[error("tensor `{tensor}` cannot be decoded: {fault}")]
    Blocks {
        /// Full name of its codes.
        tensor: String,
        /// What is wrong with its scales.
        fault: BlockFault,
    },
    /// The source has been quantised before.
    #[error("{model} is quantised already ({evidence}); start from the original checkpoint")]
    AlreadyQuantized {
        /// The model's name or folder.
        model: String,
        /// The config entry or tensor that shows it.
        evidence: String,
    },
    /// No weight would change.
    #[error("{model} has no weight to quantise: rows must divide into groups of {group} elements")]
    NothingToQuantize {
        /// The model's name or folder.
        model: String,
        /// Elements of a group.
        group: usize,
    },
    /// The source has no config.json.
    #[error("{model} has no config.json; give the folder of a complete checkpoint")]
    NoConfig {
        /// The model's name or folder.
        model: String,
    },
    /// The source's config.json is not a JSON object.
    #[error("config.json of {model} is not a JSON object: {message}")]
    BadConfig {
        /// The model's name or folder.
        model: String,
        /// What is wrong.
        message: String,
    },
    /// The result would overwrite the source.
    #[error("{} is the source itself; choose another output folder", path.display())]
    SameFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The output folder holds something.
    #[error("{} is not empty; choose a new folder or remove what is in it", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The output path cannot name a folder.
    #[error("{} does not name a folder that can be created", path.display())]
    BadOutput {
        /// What was given.
        path: PathBuf,
    },
    /// An earlier run was interrupted, or another is running.
    #[error("{} is left from an interrupted run, or another run is writing it; remove it if none is", path.display())]
    Leftover {
        /// The unfinished folder.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
}
