//! Writes a model's tensors to one or several safetensors files and the index that names them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::WriteError;
use crate::index::INDEX_FILE;
use crate::writer::{SafetensorsWriter, TensorSpec};

/// Weight files being written. Each appears under its name when it is complete, the index last.
#[derive(Debug)]
pub struct ShardWriter {
    folder: PathBuf,
    shards: Vec<(String, SafetensorsWriter)>,
    shard_of: HashMap<String, usize>,
    bytes: u64,
}

/// What a [`ShardWriter`] has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenShards {
    /// Names of the weight files.
    pub files: Vec<String>,
    /// Bytes of all tensors.
    pub bytes: u64,
}

impl ShardWriter {
    /// Starts the files for `tensors` in `folder`, none with more than `max_shard_bytes` of data unless a single
    /// tensor has. One file is called `model.safetensors`, several `model-00001-of-0000N.safetensors`.
    ///
    /// # Errors
    /// Two tensors of one name, or a file cannot be created.
    pub fn create(folder: &Path, tensors: &[TensorSpec], max_shard_bytes: u64) -> Result<Self, WriteError> {
        let mut shards: Vec<Vec<TensorSpec>> = vec![Vec::new()];
        let mut shard_of = HashMap::new();
        let (mut in_shard, mut total) = (0, 0);
        for spec in tensors {
            let size = spec.bytes()?;
            if in_shard > 0 && in_shard + size > max_shard_bytes {
                shards.push(Vec::new());
                in_shard = 0;
            }
            in_shard += size;
            total += size;
            let shard = shards.len() - 1;
            if shard_of.insert(spec.name.clone(), shard).is_some() {
                return Err(WriteError::DuplicateName { tensor: spec.name.clone() });
            }
            shards[shard].push(spec.clone());
        }
        let count = shards.len();
        let mut writers = Vec::with_capacity(count);
        for (i, specs) in shards.iter().enumerate() {
            let name = match count {
                1 => "model.safetensors".to_owned(),
                _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
            };
            let writer = SafetensorsWriter::create(&folder.join(&name), specs)?;
            writers.push((name, writer));
        }
        Ok(Self { folder: folder.to_owned(), shards: writers, shard_of, bytes: total })
    }

    /// Adds `bytes` to the data of `tensor`, after what it has already.
    ///
    /// # Errors
    /// As [`SafetensorsWriter::write`].
    pub fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), WriteError> {
        match self.shard_of.get(tensor) {
            Some(&shard) => self.shards[shard].1.write(tensor, bytes),
            None => Err(WriteError::UnknownTensor { tensor: tensor.to_owned() }),
        }
    }

    /// Completes all files and, if there are several, writes their index.
    ///
    /// # Errors
    /// A tensor that lacks data, or a failed write.
    pub fn finish(self) -> Result<WrittenShards, WriteError> {
        let mut files = Vec::with_capacity(self.shards.len());
        for (name, writer) in self.shards {
            writer.finish()?;
            files.push(name);
        }
        if files.len() > 1 {
            let map: BTreeMap<&String, &String> =
                self.shard_of.iter().map(|(tensor, &shard)| (tensor, &files[shard])).collect();
            let index = json!({ "metadata": { "total_size": self.bytes }, "weight_map": map });
            let path = self.folder.join(INDEX_FILE);
            let text = format!("{index:#}\n");
            fs::write(&path, text).map_err(|source| WriteError::Io { path, source })?;
        }
        Ok(WrittenShards { files, bytes: self.bytes })
    }
}
