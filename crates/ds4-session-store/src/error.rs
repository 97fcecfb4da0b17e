//! What can go wrong with stored sessions. A bad file is no error: it is a miss ([`Miss`]) with a [`Damage`].

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::budget::Refused;
use crate::{BlobId, MissReason};

/// Why the folder cannot be used or a state was not saved. The state on disk is as if nothing had been asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder cannot be made, read or written.
    #[error("session checkpoints cannot be kept in {}: {source}; give a folder that this user can write", path.display())]
    Folder {
        /// The folder, or what in it cannot be used.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process writes to the folder.
    #[error("another server keeps its session checkpoints in {}; give this one a folder of its own", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder was opened for reading, because another process writes to it.
    #[error("session checkpoints in {} are read-only here, because another server writes them", path.display())]
    ReadOnly {
        /// The folder.
        path: PathBuf,
    },
    /// The state does not fit.
    #[error("the session state was not saved: {0}; raise the budget for session checkpoints")]
    OverBudget(#[from] Refused),
    /// Too little space would be left on the disk.
    #[error(
        "the session state of {bytes} bytes was not saved: {free} bytes are free and {floor} bytes must stay free; free some space"
    )]
    TooLittleSpace {
        /// Bytes of the state.
        bytes: u64,
        /// Free on the disk.
        free: u64,
        /// To stay free.
        floor: u64,
    },
    /// Too much was written within an hour.
    #[error(
        "the session state was not saved: {written} of {limit} bytes of this hour's write budget are used and {bytes} more are needed"
    )]
    WriteBudget {
        /// Needed.
        bytes: u64,
        /// Written in the last hour.
        written: u64,
        /// Allowed in an hour.
        limit: u64,
    },
    /// The disk is full.
    #[error("the session state was not saved: no space left for {}; free some space or lower the budget for session checkpoints", path.display())]
    DiskFull {
        /// What was written.
        path: PathBuf,
    },
    /// The system refused to write.
    #[error("the session state was not saved: cannot write {}: {source}", path.display())]
    Write {
        /// What was written.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The caller gave something that cannot be saved.
    #[error("the session state was not saved: {0}")]
    Invalid(#[from] InvalidState),
}

impl StoreError {
    /// A failed write, with a full disk told from other reasons.
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { path }
            }
            _ => Self::Write { path, source },
        }
    }

    pub(crate) fn folder(path: &Path, source: io::Error) -> Self {
        Self::Folder { path: path.to_owned(), source }
    }
}

/// What is wrong with a state that was to be saved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidState {
    /// Nobody can start from it.
    #[error("it has no tokens or no parts")]
    Empty,
    /// A name that is empty, too long, or taken.
    #[error("part name {name:?} is empty, longer than 65,535 bytes, or used twice")]
    Name {
        /// The name.
        name: String,
    },
    /// A type tag or shape that is too long.
    #[error("part {name:?} has a type tag of more than 255 bytes or more than 255 dimensions")]
    TypeOrShape {
        /// Name of the part.
        name: String,
    },
    /// A session whose name does not fit.
    #[error("the session id {id:?} is empty or too long")]
    Session {
        /// Of the session.
        id: String,
    },
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// No checkpoint of this program.
    #[error("not a session checkpoint")]
    Foreign,
    /// Another version of the format.
    #[error("format version {found}, this program reads version {readable}")]
    OtherVersion {
        /// In the file.
        found: u32,
        /// Of this program.
        readable: u32,
    },
    /// Too short or too long.
    #[error("{actual} bytes long, must be {expected}")]
    Length {
        /// By the file's own account.
        expected: u64,
        /// Of the file.
        actual: u64,
    },
    /// The head does not have its checksum.
    #[error("the checksum of the head is wrong")]
    HeadChecksum,
    /// The head has its checksum and yet makes no sense.
    #[error("the head makes no sense at {at}")]
    Malformed {
        /// What was being read.
        at: &'static str,
    },
    /// A part does not have its checksum.
    #[error("the checksum of part {part:?} is wrong")]
    PartChecksum {
        /// Name of the part.
        part: String,
    },
    /// A blob is not there.
    #[error("blob {blob} is missing")]
    MissingBlob {
        /// The blob.
        blob: BlobId,
    },
    /// The file is sound and not the one its name promises.
    #[error("the content belongs to another name")]
    WrongName,
    /// The caller could not use a state that was sound by its checksums.
    #[error("refused by the engine: {why}")]
    Refused {
        /// The engine's reason.
        why: String,
    },
    /// The system refused to read it.
    #[error("cannot be read: {kind}")]
    Unreadable {
        /// The system's reason.
        kind: io::ErrorKind,
    },
}

/// A state that could not be loaded. The next candidate may do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}{}", damage.as_ref().map(|damage| format!(": {damage}")).unwrap_or_default())]
pub struct Miss {
    /// From the fixed list.
    pub reason: MissReason,
    /// What is wrong with the file, if it was that.
    pub damage: Option<Damage>,
}
