//! Keys of a sliding window of tokens, and entries that stand for runs of tokens before it.

use ds4_array::{Array, DType, Stream};

use super::{CacheError, CompressorCache, PagedRows, PartVisitor, StateSource};
use crate::LayerError;

/// Keys `[D]` of the last tokens, entries of all earlier ones, and an index over the entries.
#[derive(Clone, Debug)]
pub struct WindowedCache {
    tokens: PagedRows,
    span: usize,
    /// What attention reads of the tokens before the window, in layers that compress.
    pub entries: Option<CompressorCache>,
    /// What selects among the entries, in layers that select.
    pub index: Option<CompressorCache>,
}

impl WindowedCache {
    /// An empty cache of keys of `width`, stored as `dtype`, for queries that see `span` tokens.
    pub fn new(
        stream: &Stream,
        span: usize,
        width: usize,
        dtype: DType,
        entries: Option<CompressorCache>,
        index: Option<CompressorCache>,
    ) -> Self {
        Self { tokens: PagedRows::new(stream, &[width], dtype), span, entries, index }
    }

    /// Appends the keys [L, D] of tokens and forgets those that no later query sees. What the new tokens themselves see
    /// stays, so that any of them can be taken back.
    pub fn append(&mut self, keys: &Array) -> Result<(), LayerError> {
        self.tokens.forget_before(self.first_seen(self.tokens.len()));
        self.tokens.append(keys)
    }

    /// Pages of keys, and the position of the first row.
    pub fn window(&self) -> (&[Array], usize) {
        (self.tokens.pages(), self.tokens.first_row())
    }

    /// The first token that the query at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.span)
    }

    pub(super) fn visit_parts(&self, visit: &mut PartVisitor<'_>) {
        self.tokens.visit_parts_from("window", self.first_seen(self.tokens.len()), visit);
        self.entries.iter().for_each(|entries| entries.visit_parts("entries", visit));
        self.index.iter().for_each(|index| index.visit_parts("index", visit));
    }

    pub(super) fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.tokens.restore_from("window", self.first_seen(tokens), tokens, source)?;
        if let Some(entries) = &mut self.entries {
            entries.restore("entries", tokens, source)?;
        }
        self.index.as_mut().map_or(Ok(()), |index| index.restore("index", tokens, source))
    }

    pub(super) fn begin_window(&mut self) {
        self.entries.iter_mut().chain(&mut self.index).for_each(CompressorCache::begin_window);
    }

    /// Goes to the state after the first `keep` rows of the window, `tokens` in all.
    pub(super) fn commit_window(&mut self, keep: usize, tokens: usize) -> Result<(), LayerError> {
        self.tokens.trim(tokens);
        self.entries.iter_mut().chain(&mut self.index).try_for_each(|cache| cache.commit_window(keep))
    }

    /// Goes back to the first `tokens` tokens, if the keys that the next one sees are still there.
    pub(super) fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        if self.first_seen(tokens) < self.tokens.first_row() {
            let from = self.tokens.len();
            return Err(CacheError::CannotTrim { kind: "windowed", from, to: tokens });
        }
        self.entries.iter_mut().chain(&mut self.index).try_for_each(|cache| cache.trim(tokens))?;
        self.tokens.trim(tokens);
        Ok(())
    }
}
