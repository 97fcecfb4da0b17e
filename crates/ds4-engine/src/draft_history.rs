//! The draft head's view of a sequence: its cache, and the streams of the newest token, whose successor is not known yet.
//!
//! Row i of the head's cache combines the streams of token i with token i + 1. So the history is one row behind the
//! sequence, and it always goes on with the model's own streams, never with those that the head made while drafting.

use ds4_array::{Array, ops};
use ds4_models::{CacheError, DraftHead, ModelError, SequenceCache};

#[derive(Clone, Debug)]
pub(crate) struct DraftHistory {
    cache: SequenceCache,
    /// Streams of the newest token, [1, W].
    newest: Option<Array>,
}

impl DraftHistory {
    pub(crate) fn new(head: &dyn DraftHead) -> Self {
        Self { cache: head.new_cache(), newest: None }
    }

    /// Goes on by `tokens` with their `streams` [L, W].
    pub(crate) fn extend(
        &mut self,
        head: &dyn DraftHead,
        streams: &Array,
        tokens: &[u32],
    ) -> Result<(), ModelError> {
        let count = tokens.len();
        let known = ops::slice_rows(streams, 0, count - 1)?;
        let (rows, next) = match &self.newest {
            Some(newest) => (ops::concatenate(&[newest, &known], 0)?, tokens),
            None => (known, &tokens[1..]),
        };
        if !next.is_empty() {
            head.build(&rows, next, &mut self.cache)?;
        }
        // A copy: a view would keep the streams of a whole prefill chunk alive.
        self.newest = Some(ops::copy(&ops::slice_rows(streams, count - 1, 1)?)?);
        Ok(())
    }

    /// What has to be evaluated together with a pass.
    pub(crate) fn arrays(&self) -> Vec<Array> {
        self.cache.arrays().into_iter().chain(self.newest.clone()).collect()
    }

    /// Its arrays by name.
    pub(crate) fn parts(&self) -> Vec<(String, Array)> {
        let newest = self.newest.iter().map(|newest| ("newest".to_owned(), newest.clone()));
        self.cache.state().into_iter().chain(newest).collect()
    }

    /// Replaces the history by that of a sequence of `tokens` tokens, at least one.
    pub(crate) fn restore(
        &mut self,
        tokens: usize,
        source: &mut dyn FnMut(&str) -> Option<Array>,
    ) -> Result<(), CacheError> {
        let newest = source("newest").ok_or_else(|| CacheError::MissingPart { name: "newest".to_owned() })?;
        self.cache.restore(tokens - 1, source)?;
        self.newest = Some(newest);
        Ok(())
    }

    /// Where a chain of drafts starts: a cache to write into, and the streams of the newest token.
    pub(crate) fn branch(&self) -> Option<(SequenceCache, Array)> {
        Some((self.cache.clone(), self.newest.clone()?))
    }
}
