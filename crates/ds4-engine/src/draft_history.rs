//! The draft head's view of a sequence: its cache, and the streams of the newest token, whose successor is not known yet.
//!
//! Row i of the head's cache combines the streams of token i with token i + 1. So the history is one row behind the
//! sequence, and it always goes on with the model's own streams, never with those that the head made while drafting.
//!
//! Rows are noted first and enter the cache in one pass when somebody drafts, or when many have come together: while
//! nothing is drafted, they cost next to nothing.
//!
//! A chain of drafts begins with a token that is certain, so the row of its first draft stays in the history. The rows of
//! further drafts are written behind it, in a window of the cache that is always taken back.

use ds4_array::{Array, ops};
use ds4_models::{CacheError, DraftHead, ModelError, SequenceCache};

/// Noted rows that are worth a pass, whether or not anybody drafts. They hold their streams in memory.
const MANY_ROWS: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct DraftHistory {
    cache: SequenceCache,
    /// Streams of the newest token, [1, W], while its successor is not known. `None` if the next token that is noted needs no
    /// row: it is the first of the sequence, or a chain of drafts began with it.
    newest: Option<Array>,
    /// The head's own streams of the last draft, [1, W], during a chain of drafts.
    chain: Option<Array>,
    /// Streams [L, W] and tokens that have come since, in order.
    noted: Vec<(Array, Vec<u32>)>,
}

impl DraftHistory {
    pub(crate) fn new(head: &dyn DraftHead) -> Self {
        Self { cache: head.new_cache(), newest: None, chain: None, noted: Vec::new() }
    }

    /// Notes `tokens`, whose streams are the first rows of `streams`.
    pub(crate) fn note(&mut self, streams: &Array, tokens: &[u32]) -> Result<(), ModelError> {
        let kept = if streams.shape()[0] == tokens.len() {
            streams.clone()
        } else {
            ops::slice_rows(streams, 0, tokens.len())?
        };
        self.noted.push((kept, tokens.to_vec()));
        Ok(())
    }

    /// Whether so many rows were noted that they should enter the cache.
    pub(crate) fn has_many_noted(&self) -> bool {
        self.noted.iter().map(|(_, tokens)| tokens.len()).sum::<usize>() >= MANY_ROWS
    }

    /// Brings the cache up to what was noted.
    pub(crate) fn catch_up(&mut self, head: &dyn DraftHead) -> Result<(), ModelError> {
        let noted = std::mem::take(&mut self.noted);
        let tokens: Vec<u32> = noted.iter().flat_map(|(_, tokens)| tokens).copied().collect();
        if tokens.is_empty() {
            return Ok(());
        }
        let parts: Vec<&Array> = self.newest.iter().chain(noted.iter().map(|(streams, _)| streams)).collect();
        let streams = ops::concatenate(&parts, 0)?;
        let last = streams.shape()[0] - 1;
        // Without a newest token, the first of them needs no row.
        let next = if self.newest.is_some() { &tokens[..] } else { &tokens[1..] };
        if !next.is_empty() {
            head.build(&ops::slice_rows(&streams, 0, last)?, next, &mut self.cache)?;
        }
        // A copy: a view would keep the streams of a whole prefill chunk alive.
        self.newest = Some(ops::copy(&ops::slice_rows(&streams, last, 1)?)?);
        Ok(())
    }

    /// What has to be evaluated together with a pass.
    pub(crate) fn pending(&self) -> Vec<Array> {
        self.cache.pending().into_iter().chain(self.newest.clone()).collect()
    }

    /// Its arrays by name. Call [`catch_up`](Self::catch_up) first.
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
        self.noted.clear();
        Ok(())
    }

    /// One draft: goes on by `token`, and returns the head's streams [1, W] of its row. The first token of a chain is certain
    /// and must be noted next; the others are drafts. `None` if no token was noted before the chain.
    pub(crate) fn draft(&mut self, head: &dyn DraftHead, token: u32) -> Result<Option<Array>, ModelError> {
        if let Some(streams) = &self.chain {
            self.chain = Some(head.build(streams, &[token], &mut self.cache)?);
        } else {
            self.catch_up(head)?;
            let Some(newest) = self.newest.take() else { return Ok(None) };
            self.chain = Some(head.build(&newest, &[token], &mut self.cache)?);
            self.cache.begin_window();
        }
        Ok(self.chain.clone())
    }

    /// Ends a chain of drafts: only the row of its first token stays.
    pub(crate) fn end_chain(&mut self) -> Result<(), ModelError> {
        self.chain = None;
        Ok(self.cache.commit_window(0)?)
    }
}
