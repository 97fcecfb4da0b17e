//! What a model is and needs, for people.

use ds4_weights::Checkpoint;

/// How many layers of one kind a model has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerCount {
    /// Kind of layer, in words.
    pub kind: String,
    /// How many.
    pub count: usize,
}

/// A model as its files describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Family, in words.
    pub family: &'static str,
    /// `model_type` of config.json.
    pub model_type: String,
    /// Layers by kind, in order of first appearance.
    pub layers: Vec<LayerCount>,
    /// Sizes worth knowing: name and value.
    pub sizes: Vec<(&'static str, String)>,
    /// Parameters; a quantised weight counts its values.
    pub parameters: u64,
    /// Bytes by element type, largest first.
    pub bytes_by_type: Vec<(String, u64)>,
    /// Bytes of the n-gram tables, which stay on disk.
    pub table_bytes: u64,
    /// Most tokens that the configuration promises.
    pub max_context: usize,
    /// Cache bytes that do not depend on the number of tokens.
    pub fixed_cache_bytes: u64,
    /// Cache bytes for 1024 tokens.
    pub cache_bytes_per_1024: u64,
    /// Parts of the checkpoint that are not used or not there.
    pub remarks: Vec<String>,
    /// Why it cannot be run; empty if it can.
    pub problems: Vec<String>,
}

impl Description {
    /// Bytes of a sequence's caches.
    pub fn cache_bytes(&self, tokens: usize) -> u64 {
        self.fixed_cache_bytes + self.cache_bytes_per_1024 * tokens as u64 / 1024
    }
}

/// Bytes by element type, largest first.
pub(crate) fn bytes_by_type(checkpoint: &Checkpoint) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for tensor in checkpoint.tensors() {
        let name = tensor.dtype.name();
        let bytes = tensor.bytes.as_ref().len() as u64;
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += bytes,
            None => sums.push((name.to_owned(), bytes)),
        }
    }
    sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    sums
}
