//! Load golden folders: a checkpoint with the values and decisions that the reference computed from it.
//!
//! It reads safetensors with the `safetensors` crate and not with `ds4-weights`, which is one of the things under test.
//! The checkpoint itself is left to the loader under test; here are only the expectations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

use crate::comparison::Matrix;
use crate::tolerance::WeightStorage;

/// What went wrong with a golden file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; run `cargo xtask golden --check` to see what is missing", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is no safetensors file.
    #[error("{} is not a valid safetensors file: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: safetensors::SafeTensorError,
    },
    /// A tensor is not there, or not of the type it must have.
    #[error("{} has no tensor `{tensor}` of type {expected}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The element type that was looked for.
        expected: &'static str,
    },
}

/// The expected values of one checkpoint.
#[derive(Debug, Clone)]
pub struct Golden {
    /// Name of the folder.
    pub name: String,
    /// The folder, which is also the checkpoint directory.
    pub folder: PathBuf,
    /// Input token ids.
    pub ids: Vec<u32>,
    /// [T, V] logits of one pass over all ids.
    pub logits: Matrix,
    /// [T, V] logits of a prefill of `prefill_len` ids followed by one id at a time.
    pub decode_logits: Matrix,
    /// Length of the prefill in `decode_logits`.
    pub prefill_len: usize,
    /// By layer, [T, streams * hidden size]: the residual streams after it. Kept for few checkpoints.
    pub hidden: BTreeMap<usize, Matrix>,
}

/// A table of integers with one row per token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Number of columns.
    pub columns: usize,
    /// Row-major values.
    pub values: Vec<i64>,
}

/// The discrete decisions of one pass over all ids, by layer. They must be equal, not close.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// [T, K] experts per token, most probable first.
    pub routes: BTreeMap<usize, Table>,
    /// [T, T] 1 where the query (row) attends to the key (column).
    pub selection: BTreeMap<usize, Table>,
    /// [T, heads] rows of the n-gram table.
    pub ngram_ids: BTreeMap<usize, Table>,
}

impl Golden {
    /// Reads `golden.safetensors` of a checkpoint folder.
    pub fn load(folder: &Path) -> Result<Self, GoldenError> {
        let file = TensorFile::open(&folder.join("golden.safetensors"))?;
        Ok(Self {
            name: folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            folder: folder.to_path_buf(),
            ids: file.token_ids("ids")?,
            logits: file.floats("logits")?,
            decode_logits: file.floats("decode_logits")?,
            prefill_len: usize::try_from(file.integers("prefill_len")?.values[0])
                .expect("a length is not negative"),
            hidden: file.by_layer("hidden.", TensorFile::floats)?,
        })
    }

    /// How the checkpoint's weights are stored, read off its config.
    pub fn storage(&self) -> Result<WeightStorage, GoldenError> {
        let path = self.folder.join("config.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| GoldenError::Read { path: path.clone(), source })?;
        let compact: String = text.split_whitespace().collect();
        Ok(if compact.contains("\"quantization\":") {
            if compact.contains("\"bits\":4") { WeightStorage::Affine4 } else { WeightStorage::Affine8 }
        } else if compact.contains("\"dtype\":\"float32\"") {
            WeightStorage::F32
        } else {
            WeightStorage::Half
        })
    }
}

impl Decisions {
    /// Reads a decisions file.
    pub fn load(path: &Path) -> Result<Self, GoldenError> {
        let file = TensorFile::open(path)?;
        Ok(Self {
            routes: file.by_layer("routes.", TensorFile::integers)?,
            selection: file.by_layer("selection.", TensorFile::integers)?,
            ngram_ids: file.by_layer("ngram_ids.", TensorFile::integers)?,
        })
    }
}

/// The `golden` folder of this workspace.
pub fn root() -> PathBuf {
    workspace().join("golden")
}

/// The bundled demo checkpoint of a family.
pub fn demo(family: &str) -> PathBuf {
    workspace().join("demo").join(family)
}

/// The checkpoint folders of a family (the value of `model_type`), in the order of their names.
pub fn checkpoints(family: &str) -> Result<Vec<PathBuf>, GoldenError> {
    let path = root().join(family);
    let read = |source| GoldenError::Read { path: path.clone(), source };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(read)? {
        let folder = entry.map_err(read)?.path();
        if folder.join("golden.safetensors").is_file() {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A safetensors file in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Reads the whole file and checks its header.
    pub fn open(path: &Path) -> Result<Self, GoldenError> {
        let bytes =
            std::fs::read(path).map_err(|source| GoldenError::Read { path: path.to_path_buf(), source })?;
        let file = Self { path: path.to_path_buf(), bytes };
        file.parse()?;
        Ok(file)
    }

    /// A float32 tensor; leading dimensions are folded into rows.
    pub fn floats(&self, name: &str) -> Result<Matrix, GoldenError> {
        let parsed = self.parse()?;
        let missing = || self.missing(name, "float32");
        let view = parsed.tensor(name).map_err(|_| missing())?;
        if view.dtype() != Dtype::F32 {
            return Err(missing());
        }
        let columns = view.shape().last().copied().unwrap_or(1);
        Ok(Matrix::new(columns, each::<4, f32>(view.data(), f32::from_le_bytes)))
    }

    /// A tensor of uint8, int32 or int64; leading dimensions are folded into rows.
    pub fn integers(&self, name: &str) -> Result<Table, GoldenError> {
        let parsed = self.parse()?;
        let missing = || self.missing(name, "integer");
        let view = parsed.tensor(name).map_err(|_| missing())?;
        let data = view.data();
        let values = match view.dtype() {
            Dtype::U8 => data.iter().map(|&b| i64::from(b)).collect(),
            Dtype::I32 => each::<4, i64>(data, |b| i64::from(i32::from_le_bytes(b))),
            Dtype::I64 => each::<8, i64>(data, i64::from_le_bytes),
            _ => return Err(missing()),
        };
        Ok(Table { columns: view.shape().last().copied().unwrap_or(1), values })
    }

    /// A tensor of token ids.
    pub fn token_ids(&self, name: &str) -> Result<Vec<u32>, GoldenError> {
        let ids = self.integers(name)?.values.into_iter().map(u32::try_from).collect::<Result<_, _>>();
        ids.map_err(|_| self.missing(name, "token id"))
    }

    /// All tensors `<prefix>N`, read by `read`, keyed by the layer number N.
    pub fn by_layer<T>(
        &self,
        prefix: &str,
        read: impl Fn(&Self, &str) -> Result<T, GoldenError>,
    ) -> Result<BTreeMap<usize, T>, GoldenError> {
        let parsed = self.parse()?;
        let layers = parsed.names().into_iter().filter_map(|n| n.strip_prefix(prefix)?.parse::<usize>().ok());
        layers.map(|layer| Ok((layer, read(self, &format!("{prefix}{layer}"))?))).collect()
    }

    fn parse(&self) -> Result<SafeTensors<'_>, GoldenError> {
        SafeTensors::deserialize(&self.bytes)
            .map_err(|source| GoldenError::Format { path: self.path.clone(), source })
    }

    fn missing(&self, tensor: &str, expected: &'static str) -> GoldenError {
        GoldenError::Tensor { path: self.path.clone(), tensor: tensor.to_owned(), expected }
    }
}

fn each<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| decode(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_checkpoint_loads_and_its_shapes_agree() {
        let folders = checkpoints("qwen4_exp").unwrap();
        assert!(folders.len() >= 8, "at least eight are kept, found {}", folders.len());
        for folder in folders {
            let golden = Golden::load(&folder).unwrap();
            let decisions = Decisions::load(&folder.join("decisions.safetensors")).unwrap();
            let tokens = golden.ids.len();
            assert_eq!(golden.logits.rows, tokens, "{}", golden.name);
            assert_eq!(golden.decode_logits.rows, tokens, "{}", golden.name);
            assert!((1..tokens).contains(&golden.prefill_len), "{}", golden.name);
            assert!(!decisions.routes.is_empty(), "{}", golden.name);
            for table in decisions.routes.values().chain(decisions.selection.values()) {
                assert_eq!(table.values.len(), tokens * table.columns, "{}", golden.name);
            }
        }
    }

    #[test]
    fn storage_is_read_off_the_config() {
        let storage =
            |name: &str| Golden::load(&root().join("qwen4_exp").join(name)).unwrap().storage().unwrap();
        assert_eq!(storage("base"), WeightStorage::F32);
        assert_eq!(storage("bf16"), WeightStorage::Half);
        assert_eq!(storage("affine_8bit_g64"), WeightStorage::Affine8);
        assert_eq!(storage("affine_4bit_g32"), WeightStorage::Affine4);
        assert_eq!(storage("mlx_layout"), WeightStorage::Affine4);
    }

    #[test]
    fn selections_are_causal_and_within_the_budget() {
        let folder = root().join("qwen4_exp/long_sparse");
        let decisions = Decisions::load(&folder.join("decisions.safetensors")).unwrap();
        for table in decisions.selection.values() {
            for (query, row) in table.values.chunks(table.columns).enumerate() {
                assert!(row[query + 1..].iter().all(|&seen| seen == 0), "query {query} sees the future");
                // budget 32, and a tail of at most 3 tokens of an incomplete block of 4
                assert!(row.iter().sum::<i64>() <= 32 + 3, "query {query} sees more than its budget");
            }
        }
    }

    #[test]
    fn a_missing_folder_says_what_to_do() {
        let error = Golden::load(Path::new("no-such-folder")).unwrap_err().to_string();
        assert!(error.contains("cargo xtask golden --check"), "{error}");
    }
}
