//! Latents of an attention layer from which every head's keys and values follow, with the index that selects among them.

use ds4_array::{DType, Stream};

use super::{CacheError, IndexCache, PagedRows, PartVisitor, StateSource};
use crate::LayerError;

/// One latent a token, and the index over them in a layer with an indexer of its own.
#[derive(Clone, Debug)]
pub struct LatentCache {
    /// Normed latents, [1, R] a token: the one key and value head of all query heads.
    pub latents: PagedRows,
    /// Keys of blocks; none in a layer that uses the selection of another.
    pub index: Option<IndexCache>,
}

impl LatentCache {
    /// An empty cache that stores latents of `rank` elements as `dtype`.
    pub fn new(stream: &Stream, rank: usize, dtype: DType, index: Option<IndexCache>) -> Self {
        Self { latents: PagedRows::new(stream, &[1, rank], dtype), index }
    }

    pub(super) fn visit_parts(&self, visit: &mut PartVisitor<'_>) {
        self.latents.visit_parts("latents", visit);
        self.index.iter().for_each(|index| index.visit_parts(visit));
    }

    pub(super) fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.latents.restore("latents", tokens, source)?;
        self.index.iter_mut().try_for_each(|index| index.restore(tokens, source))
    }

    pub(super) fn begin_window(&mut self) {
        self.index.iter_mut().for_each(IndexCache::begin_window);
    }

    /// Goes to the state after the first `keep` rows of the window, `tokens` in all.
    pub(super) fn commit_window(&mut self, keep: usize, tokens: usize) -> Result<(), LayerError> {
        self.latents.trim(tokens);
        self.index.iter_mut().try_for_each(|index| index.commit_window(keep, tokens))
    }

    pub(super) fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        self.index.iter_mut().try_for_each(|index| index.trim(tokens))?;
        self.latents.trim(tokens);
        Ok(())
    }
}
