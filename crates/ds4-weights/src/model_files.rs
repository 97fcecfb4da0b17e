//! Where a model's files come from: a folder on disk, or the executable itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::WeightsError;
use crate::tensor::{Region, mapped};

/// The files of one model. Cheap to clone; opens nothing before it is asked for.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Folder(PathBuf),
    Embedded { name: &'static str, files: &'static [(&'static str, &'static [u8])] },
}

impl ModelFiles {
    /// The files in the folder `dir`.
    ///
    /// # Errors
    /// If `dir` is not a folder or must not be read.
    pub fn open(dir: &Path) -> Result<Self, WeightsError> {
        match fs::metadata(dir) {
            Ok(metadata) if metadata.is_dir() => Ok(Self { source: Source::Folder(dir.to_owned()) }),
            Ok(_) => Err(WeightsError::NotAFolder { path: dir.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(WeightsError::NotAFolder { path: dir.to_owned() })
            }
            Err(source) => Err(WeightsError::Read { path: dir.to_owned(), source }),
        }
    }

    /// Files that are part of the program, as pairs of name and contents.
    ///
    /// Tensors are used in place where `contents` is aligned to 8 bytes, and copied where it is not.
    pub fn embedded(name: &'static str, files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self { source: Source::Embedded { name, files } }
    }

    /// What to call the model in messages: the embedded name, or the folder.
    pub fn name(&self) -> String {
        match &self.source {
            Source::Folder(dir) => dir.display().to_string(),
            Source::Embedded { name, .. } => (*name).to_owned(),
        }
    }

    /// The folder, if the files are in one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.source {
            Source::Folder(dir) => Some(dir),
            Source::Embedded { .. } => None,
        }
    }

    /// The contents of `file`, or `None` if the model has no such file.
    ///
    /// # Errors
    /// If the file is there but cannot be read.
    pub fn read(&self, file: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        match &self.source {
            Source::Folder(dir) => {
                let path = dir.join(file);
                match fs::read(&path) {
                    Ok(contents) => Ok(Some(contents)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(source) => Err(WeightsError::Read { path, source }),
                }
            }
            Source::Embedded { files, .. } => Ok(contents(files, file).map(<[u8]>::to_vec)),
        }
    }

    /// The names of all files ending in `.safetensors`, sorted.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn safetensors(&self) -> Result<Vec<String>, WeightsError> {
        let mut names: Vec<String> = match &self.source {
            Source::Folder(dir) => {
                let failed = |source| WeightsError::Read { path: dir.clone(), source };
                let mut names = Vec::new();
                for entry in fs::read_dir(dir).map_err(failed)? {
                    // A name that is not text cannot be one of ours.
                    names.extend(entry.map_err(failed)?.file_name().into_string());
                }
                names
            }
            Source::Embedded { files, .. } => files.iter().map(|(name, _)| (*name).to_owned()).collect(),
        };
        names.retain(|name| name.ends_with(".safetensors"));
        names.sort();
        Ok(names)
    }

    /// The bytes of a weight file, mapped, or `None` if the model has no such file.
    pub(crate) fn map(&self, file: &str) -> Result<Option<Region>, WeightsError> {
        match &self.source {
            Source::Folder(dir) => {
                let path = dir.join(file);
                match mapped(&path) {
                    Ok(region) => Ok(Some(region)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(source) => Err(WeightsError::Read { path, source }),
                }
            }
            Source::Embedded { files, .. } => Ok(contents(files, file).map(Region::Static)),
        }
    }
}

fn contents(files: &'static [(&'static str, &'static [u8])], file: &str) -> Option<&'static [u8]> {
    files.iter().find(|(name, _)| *name == file).map(|(_, contents)| *contents)
}
