//! Keys and values of an attention layer, with the index that selects among them.

use ds4_array::{DType, Stream};

use super::{CacheError, IndexCache, PagedRows, PartVisitor, StateSource};
use crate::LayerError;

/// Keys and values, [Hkv, D] a token, and the index over them.
#[derive(Clone, Debug)]
pub struct AttentionCache {
    /// Keys, rotated.
    pub keys: PagedRows,
    /// Values.
    pub values: PagedRows,
    /// Keys of blocks.
    pub index: IndexCache,
}

impl AttentionCache {
    /// An empty cache that stores keys and values as `dtype`.
    pub fn new(stream: &Stream, heads: usize, head_dim: usize, dtype: DType, index: IndexCache) -> Self {
        let rows = || PagedRows::new(stream, &[heads, head_dim], dtype);
        Self { keys: rows(), values: rows(), index }
    }

    pub(super) fn visit_parts(&self, visit: &mut PartVisitor<'_>) {
        self.keys.visit_parts("keys", visit);
        self.values.visit_parts("values", visit);
        self.index.visit_parts(visit);
    }

    pub(super) fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.keys.restore("keys", tokens, source)?;
        self.values.restore("values", tokens, source)?;
        self.index.restore(tokens, source)
    }

    pub(super) fn begin_window(&mut self) {
        self.index.begin_window();
    }

    /// Goes to the state after the first `keep` rows of the window, `tokens` in all.
    pub(super) fn commit_window(&mut self, keep: usize, tokens: usize) -> Result<(), LayerError> {
        self.keys.trim(tokens);
        self.values.trim(tokens);
        self.index.commit_window(keep, tokens)
    }

    pub(super) fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        self.index.trim(tokens)?;
        self.keys.trim(tokens);
        self.values.trim(tokens);
        Ok(())
    }
}
