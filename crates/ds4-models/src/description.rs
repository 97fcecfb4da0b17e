//! What a model is and needs, for people.

use ds4_array::DType;
use ds4_layers::{PagedRows, Params};
use ds4_weights::{Checkpoint, Tensor};

use crate::SkippedPart;

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
    /// Rows of the embedding: token ids are below this.
    pub vocabulary: usize,
    /// Most tokens that the configuration promises.
    pub max_context: usize,
    /// What the caches of a sequence take.
    pub cache_size: CacheSize,
    /// Parts of the checkpoint that are not used.
    pub skipped: Vec<SkippedPart>,
    /// What else is not used or not there.
    pub remarks: Vec<String>,
    /// Why it cannot be run; empty if it can.
    pub problems: Vec<String>,
}

/// Tokens of a page of keys and values.
const PAGE: usize = PagedRows::PAGE_ROWS;

/// What the caches of a sequence take in float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Bytes that do not depend on the number of tokens.
    pub fixed: u64,
    /// Bytes for 1024 tokens.
    pub per_1024: u64,
}

impl CacheSize {
    /// With keys and values in another float format. What grows with the tokens are these, and little else.
    pub fn with_key_values(self, dtype: DType) -> Self {
        Self { per_1024: self.per_1024 * dtype.size() as u64 / DType::F32.size() as u64, ..self }
    }

    /// Bytes at so many tokens, which may be any number, as configurations and users may name any. They are kept in whole pages.
    pub fn bytes(&self, tokens: usize) -> u64 {
        let pages = tokens.div_ceil(PAGE) as u128;
        let growing = u128::from(self.per_1024) * pages * PAGE as u128 / 1024;
        self.fixed.saturating_add(u64::try_from(growing).unwrap_or(u64::MAX))
    }
}

impl Description {
    /// Bytes of weights that have to be in memory to run fast: all but the n-gram tables.
    pub fn resident_bytes(&self) -> u64 {
        let all: u64 = self.bytes_by_type.iter().map(|(_, bytes)| bytes).sum();
        all.saturating_sub(self.table_bytes)
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

/// The kinds of layers that there are any of.
pub(crate) fn count_layers<const N: usize>(counts: [(&str, usize); N]) -> Vec<LayerCount> {
    let present = counts.into_iter().filter(|(_, count)| *count > 0);
    present.map(|(kind, count)| LayerCount { kind: kind.to_owned(), count }).collect()
}

/// Parameters of a model loaded from `params`, and why it cannot be run.
pub(crate) fn parameters_and_problems(params: Params<'_>) -> (u64, Vec<String>) {
    match params.finish() {
        Ok(parameters) => (parameters, Vec::new()),
        Err(error) => (0, vec![error.to_string()]),
    }
}

/// The tensors of types that are not supported.
pub(crate) fn unsupported_remarks(checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    checkpoint
        .unsupported()
        .map(|tensor| format!("{} has the unsupported type {}", tensor.name, tensor.dtype))
}

/// What [`bytes_per_token`] has to know of a family.
pub(crate) struct Reading {
    /// Rows of the embedding table.
    pub(crate) vocab: usize,
    /// Experts of a layer.
    pub(crate) experts: usize,
    /// Of these, how many a token is routed to.
    pub(crate) experts_per_token: usize,
}

/// See [`LoadedModel::bytes_per_token`](crate::LoadedModel::bytes_per_token). `own_name` leads to the family's names, and
/// tensors of which a token reads too little to count are `untouched`.
pub(crate) fn bytes_per_token(
    checkpoint: &Checkpoint,
    reading: &Reading,
    own_name: impl Fn(&str) -> Option<String>,
    untouched: impl Fn(&str) -> bool,
) -> u64 {
    let has_head = checkpoint.names().any(|name| own_name(name).is_some_and(|name| name == "lm_head.weight"));
    let read = |tensor: &Tensor| {
        let bytes = tensor.bytes.as_ref().len() as u64;
        let Some(name) = own_name(&tensor.name) else { return 0 };
        if untouched(&name) {
            0
        } else if name.starts_with("embed_tokens.") && has_head {
            bytes / reading.vocab as u64
        } else if name.contains(".mlp.experts.") {
            bytes * reading.experts_per_token as u64 / reading.experts as u64
        } else {
            bytes
        }
    };
    checkpoint.tensors().map(read).sum()
}
