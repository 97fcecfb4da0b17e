//! All tensors of a model, found by their full names.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::index::WeightFiles;
use crate::tensor::{Region, TensorBytes, mapped};
use crate::{ElementType, Header, ModelFiles, Problem, ProblemKind, Tensor, WeightsError, parse_header};

/// The tensors of a model's weight files. Loading maps the files and reads their headers; data is read when used.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    model: String,
    tensors: BTreeMap<String, Tensor>,
    unsupported: BTreeMap<String, UnsupportedTensor>,
}

/// A tensor whose element type cannot be computed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedTensor {
    /// Full name.
    pub name: String,
    /// Type as named in the file.
    pub dtype: String,
    /// Sizes of the dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Bytes of its data.
    pub bytes: u64,
}

impl Checkpoint {
    /// Loads every weight file of a model: with `model.safetensors.index.json` those it names, otherwise all whose
    /// names start with `model`; `mtp.safetensors` and `ngram-table.safetensors` in both cases.
    ///
    /// # Errors
    /// [`WeightsError::Invalid`] with all faults of all files.
    pub fn load(files: &ModelFiles) -> Result<Self, WeightsError> {
        let mut loader = Loader::new(files.name());
        for (file, expected) in WeightFiles::choose(files)?.0 {
            loader.load_file(files, &file, &expected)?;
        }
        loader.finish()
    }

    /// Loads a single safetensors file of any name.
    ///
    /// # Errors
    /// If there is no such file, or [`WeightsError::Invalid`] with all faults.
    pub fn load_file(path: &Path) -> Result<Self, WeightsError> {
        let region = mapped(path).map_err(|source| WeightsError::Read { path: path.to_owned(), source })?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let mut loader = Loader::new(path.display().to_string());
        loader.add_file(&region, &file, &[]);
        loader.finish()
    }

    /// What to call the model in messages: its folder, or its embedded name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The tensor with this name, if there is one of a supported type.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`] or [`WeightsError::UnsupportedDType`].
    pub fn require(&self, name: &str) -> Result<&Tensor, WeightsError> {
        let (model, tensor) = (self.model.clone(), name.to_owned());
        match (self.tensors.get(name), self.unsupported.get(name)) {
            (Some(found), _) => Ok(found),
            (None, Some(found)) => {
                Err(WeightsError::UnsupportedDType { model, tensor, dtype: found.dtype.clone() })
            }
            (None, None) => Err(WeightsError::MissingTensor { model, tensor }),
        }
    }

    /// Names of all tensors of supported types, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// All tensors of supported types, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// Tensors that are there but cannot be used, sorted by name.
    pub fn unsupported(&self) -> impl Iterator<Item = &UnsupportedTensor> {
        self.unsupported.values()
    }

    /// Bytes of all tensors, unsupported ones included.
    pub fn total_bytes(&self) -> u64 {
        data_bytes(self.tensors.values()) + self.unsupported.values().map(|tensor| tensor.bytes).sum::<u64>()
    }

    /// Reads everything into memory except tensors that were given
    /// [`advise_random`](Tensor::advise_random); `progress` is called with bytes done and bytes to be read in all.
    pub fn prefetch(&self, progress: &dyn Fn(u64, u64)) {
        let wanted = || self.tensors.values().filter(|tensor| !tensor.bytes.are_random());
        let total = data_bytes(wanted());
        let mut done = 0;
        for tensor in wanted() {
            tensor.bytes.load(&mut |bytes| {
                done += bytes;
                progress(done, total);
            });
        }
    }
}

fn data_bytes<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> u64 {
    tensors.map(|tensor| tensor.bytes.as_ref().len() as u64).sum()
}

/// Collects tensors and faults file by file.
struct Loader {
    checkpoint: Checkpoint,
    /// Which file each tensor came from.
    origins: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl Loader {
    fn new(model: String) -> Self {
        let checkpoint = Checkpoint { model, tensors: BTreeMap::new(), unsupported: BTreeMap::new() };
        Self { checkpoint, origins: BTreeMap::new(), problems: Vec::new() }
    }

    fn load_file(&mut self, files: &ModelFiles, file: &str, expected: &[String]) -> Result<(), WeightsError> {
        let Some(region) = files.map(file)? else {
            self.problem(file, ProblemKind::FileMissing { tensors: expected.len() });
            return Ok(());
        };
        self.add_file(&region, file, expected);
        Ok(())
    }

    fn add_file(&mut self, region: &Region, file: &str, expected: &[String]) {
        match parse_header(region.bytes()) {
            Ok(header) => {
                self.check_expected(file, &header, expected);
                for entry in header.entries {
                    if let Some(other) = self.origins.insert(entry.name.clone(), file.to_owned()) {
                        self.problem(file, ProblemKind::DuplicateAcrossFiles { tensor: entry.name, other });
                        continue;
                    }
                    match entry.dtype {
                        ElementType::Supported(dtype) => {
                            let bytes = TensorBytes::new(region, entry.range, dtype.size());
                            let tensor =
                                Tensor { name: entry.name.clone(), dtype, shape: entry.shape, bytes };
                            self.checkpoint.tensors.insert(entry.name, tensor);
                        }
                        ElementType::Unsupported(dtype) => {
                            let (name, bytes) = (entry.name.clone(), entry.range.len() as u64);
                            let tensor = UnsupportedTensor { name, dtype, shape: entry.shape, bytes };
                            self.checkpoint.unsupported.insert(entry.name, tensor);
                        }
                    }
                }
            }
            Err(kinds) => kinds.into_iter().for_each(|kind| self.problem(file, kind)),
        }
    }

    fn check_expected(&mut self, file: &str, header: &Header, expected: &[String]) {
        let present: HashSet<&str> = header.entries.iter().map(|entry| entry.name.as_str()).collect();
        for tensor in expected.iter().filter(|tensor| !present.contains(tensor.as_str())) {
            self.problem(file, ProblemKind::NotInFile { tensor: tensor.clone() });
        }
    }

    fn problem(&mut self, file: &str, kind: ProblemKind) {
        self.problems.push(Problem { file: file.to_owned(), kind });
    }

    fn finish(self) -> Result<Checkpoint, WeightsError> {
        if self.problems.is_empty() {
            Ok(self.checkpoint)
        } else {
            Err(WeightsError::Invalid { model: self.checkpoint.model, problems: self.problems })
        }
    }
}
