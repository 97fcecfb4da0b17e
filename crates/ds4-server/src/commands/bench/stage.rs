//! A model with caches at the contexts that are measured, and the passes over it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ds4_array::{Array, Device, eval, ops};
use ds4_models::{BatchSegment, CausalLm, LoadedModel, LogitRows, SequenceCache};

use super::tokens;

/// Tokens of a prefill pass; longer prompts are cut.
const CHUNK: usize = 512;

/// Tokens of a pass where memory counts. The engine's passes take a quarter of a second, which is this or less on two cores.
const REQUEST_CHUNK: usize = 192;

/// Contexts above this are made from the caches of one that is this long.
const LONGEST_PREFILL: usize = 2048;

pub(super) struct Stage {
    pub(super) loaded: LoadedModel,
    pub(super) device: Device,
    tokens: Vec<u32>,
    /// Caches that were made once, by context.
    contexts: RefCell<BTreeMap<usize, SequenceCache>>,
}

impl Stage {
    pub(super) fn new(loaded: LoadedModel, device: Device) -> Self {
        let tokens = tokens::arbitrary(LONGEST_PREFILL, loaded.model.vocabulary());
        Self { loaded, device, tokens, contexts: RefCell::default() }
    }

    fn model(&self) -> &dyn CausalLm {
        &*self.loaded.model
    }

    /// Reads a prompt of `count` tokens, as a request does: the logits of the last one come out.
    pub(super) fn prefill(&self, count: usize) -> anyhow::Result<SequenceCache> {
        self.prefill_in(count, CHUNK)
    }

    fn prefill_in(&self, count: usize, chunk: usize) -> anyhow::Result<SequenceCache> {
        let mut cache = self.model().new_cache();
        let mut chunks = self.tokens[..count].chunks(chunk).peekable();
        while let Some(tokens) = chunks.next() {
            let logits = if chunks.peek().is_some() { LogitRows::None } else { LogitRows::Last };
            self.pass(&mut [BatchSegment { tokens, cache: &mut cache, logits }])?;
        }
        Ok(cache)
    }

    /// The time of that.
    pub(super) fn timed_prefill(&self, count: usize) -> anyhow::Result<Duration> {
        let started = Instant::now();
        self.prefill(count)?;
        Ok(started.elapsed())
    }

    /// A copy of caches that hold `tokens` tokens. Long ones repeat the pages of a shorter one in memory of their own, which is what
    /// the speed of a pass depends on.
    pub(super) fn context(&self, tokens: usize) -> anyhow::Result<SequenceCache> {
        if let Some(cache) = self.contexts.borrow().get(&tokens) {
            return Ok(cache.clone());
        }
        let cache = if tokens > LONGEST_PREFILL {
            self.stretched(&self.context(LONGEST_PREFILL)?, tokens)?
        } else {
            self.prefill(tokens)?
        };
        self.contexts.borrow_mut().insert(tokens, cache.clone());
        Ok(cache)
    }

    /// The same, kept for nobody else and read as a request's prompt is.
    pub(super) fn fresh_context(&self, tokens: usize) -> anyhow::Result<SequenceCache> {
        let short = self.prefill_in(tokens.min(LONGEST_PREFILL), REQUEST_CHUNK)?;
        if tokens > LONGEST_PREFILL { self.stretched(&short, tokens) } else { Ok(short) }
    }

    fn stretched(&self, short: &SequenceCache, tokens: usize) -> anyhow::Result<SequenceCache> {
        let parts: BTreeMap<String, Array> = short.state().into_iter().collect();
        let mut copies = Vec::new();
        let mut cache = self.model().new_cache();
        cache.restore(tokens, &mut |name| {
            let copy = ops::copy(similar(&parts, name)?).ok()?;
            copies.push(copy.clone());
            Some(copy)
        })?;
        eval(&copies.iter().collect::<Vec<_>>())?;
        Ok(cache)
    }

    /// The time of a decode step of all `sequences` in one batch.
    pub(super) fn decode(&self, sequences: &mut [SequenceCache]) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let tokens = |i: usize, cache: &SequenceCache| self.tokens_at(31 * cache.tokens() + 7 * i, 1);
        let mut batch: Vec<BatchSegment<'_>> = sequences
            .iter_mut()
            .enumerate()
            .map(|(i, cache)| BatchSegment { tokens: tokens(i, cache), cache, logits: LogitRows::Last })
            .collect();
        self.pass(&mut batch)?;
        Ok(started.elapsed())
    }

    /// The time of a speculative check of `rows` tokens of each sequence, all of which are accepted.
    pub(super) fn verify(&self, sequences: &mut [SequenceCache], rows: usize) -> anyhow::Result<Duration> {
        let started = Instant::now();
        for cache in sequences {
            let tokens = self.tokens_at(31 * cache.tokens(), rows);
            cache.begin_window();
            self.pass(&mut [BatchSegment { tokens, cache: &mut *cache, logits: LogitRows::All }])?;
            cache.commit_window(rows)?;
        }
        Ok(started.elapsed())
    }

    /// `count` arbitrary tokens, others for each `place`.
    fn tokens_at(&self, place: usize, count: usize) -> &[u32] {
        let first = place % (self.tokens.len() - count);
        &self.tokens[first..first + count]
    }

    /// A forward pass with its logits brought to the host, where a sampler would read them.
    fn pass(&self, batch: &mut [BatchSegment<'_>]) -> anyhow::Result<()> {
        let forward = self.model().forward(batch)?;
        if let Some(logits) = forward.logits {
            let sum = logits
                .read_bytes(|bytes| bytes.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>())?;
            std::hint::black_box(sum);
        }
        Ok(())
    }
}

/// The part of this name, or of a page with another number.
fn similar<'a>(parts: &'a BTreeMap<String, Array>, name: &str) -> Option<&'a Array> {
    if let Some(part) = parts.get(name) {
        return Some(part);
    }
    let (kind, page) = name.rsplit_once('.')?;
    let page: usize = page.parse().ok()?;
    let prefix = format!("{kind}.");
    let pages: Vec<&Array> = parts
        .range(prefix.clone()..)
        .take_while(|(name, _)| name.starts_with(&prefix))
        .filter(|(name, _)| name[prefix.len()..].parse::<usize>().is_ok())
        .map(|(_, array)| array)
        .collect();
    pages.get(page.checked_rem(pages.len())?).copied()
}
