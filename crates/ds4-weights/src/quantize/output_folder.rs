//! A folder that appears under its name only when everything is in it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::QuantizeError;

/// The folder `<name>.partial` beside the wanted one. Dropped unfinished, it is removed.
#[derive(Debug)]
pub(crate) struct OutputFolder {
    partial: PathBuf,
    wanted: PathBuf,
    finished: bool,
}

impl OutputFolder {
    /// Prepares to fill `wanted`, which must be empty or absent, and not the folder `source`.
    pub(crate) fn create(wanted: &Path, source: Option<&Path>) -> Result<Self, QuantizeError> {
        let path = || wanted.to_owned();
        let io_error = |source| QuantizeError::Io { path: path(), source };
        let absolute = std::path::absolute(wanted).map_err(io_error)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(QuantizeError::BadOutput { path: path() });
        };
        match fs::read_dir(&absolute) {
            Ok(mut entries) => {
                let canonical = |p: &Path| fs::canonicalize(p).ok();
                if source.is_some_and(|source| canonical(source) == canonical(&absolute)) {
                    return Err(QuantizeError::SameFolder { path: path() });
                }
                if entries.next().is_some() {
                    return Err(QuantizeError::NotEmpty { path: path() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(QuantizeError::BadOutput { path: path() });
            }
            Err(source) => return Err(io_error(source)),
        }
        fs::create_dir_all(parent).map_err(io_error)?;
        let mut partial_name = OsString::from(name);
        partial_name.push(".partial");
        let partial = parent.join(partial_name);
        match fs::create_dir(&partial) {
            Ok(()) => Ok(Self { partial, wanted: absolute, finished: false }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(QuantizeError::Leftover { path: partial })
            }
            Err(source) => Err(QuantizeError::Io { path: partial, source }),
        }
    }

    /// Where to write meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.partial
    }

    /// Writes a whole file.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<(), QuantizeError> {
        let path = self.partial.join(name);
        fs::write(&path, contents).map_err(|source| QuantizeError::Io { path, source })
    }

    /// Gives the folder its name.
    pub(crate) fn finish(mut self) -> Result<(), QuantizeError> {
        // Takes the place of an empty folder, if there is one; anything put there meanwhile makes it fail.
        fs::rename(&self.partial, &self.wanted)
            .map_err(|source| QuantizeError::Io { path: self.wanted.clone(), source })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed is reported as a leftover by the next run.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}
