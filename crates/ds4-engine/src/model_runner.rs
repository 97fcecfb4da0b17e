//! Runs passes of the model for one sequence or several, and of its draft head for one.
//!
//! A pass evaluates everything that hangs on it at once: logits, caches, and what an earlier cycle left to be computed.

use ds4_array::{Array, ArrayError, eval, ops};
use ds4_engine_api::EngineError;
use ds4_models::{BatchSegment, CausalLm, LogitRows, ModelError, SamplerRule};

use crate::draft_history::DraftHistory;
use crate::state::SequenceState;

pub(crate) struct ModelRunner {
    model: Box<dyn CausalLm>,
    sampler: SamplerRule,
}

/// What one sequence brings to a pass.
pub(crate) struct Segment<'a> {
    /// At least one.
    pub(crate) tokens: &'a [u32],
    pub(crate) state: &'a mut SequenceState,
    pub(crate) wanted: Wanted<'a>,
}

/// Which logits of a segment are wanted, and where they go.
pub(crate) enum Wanted<'a> {
    /// Tokens of a prompt, which are certain. After its end, logits of the last one are wanted.
    AfterPrompt(Option<&'a mut Vec<f32>>),
    /// A window to be checked: after each of its tokens, [L, V]. What is kept of it is told to the draft head's history later.
    AfterEach(&'a mut Vec<f32>),
}

/// A pass that was run, for those who took part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) seconds: f64,
    /// Whether it was for one sequence only.
    pub(crate) is_alone: bool,
}

impl Segment<'_> {
    fn for_model(&mut self) -> BatchSegment<'_> {
        let logits = match self.wanted {
            Wanted::AfterPrompt(None) => LogitRows::None,
            Wanted::AfterPrompt(Some(_)) => LogitRows::Last,
            Wanted::AfterEach(_) => LogitRows::All,
        };
        BatchSegment { tokens: self.tokens, cache: &mut self.state.cache, logits }
    }
}

impl ModelRunner {
    pub(crate) fn new(model: Box<dyn CausalLm>, sampler: SamplerRule) -> Self {
        Self { model, sampler }
    }

    pub(crate) fn model(&self) -> &dyn CausalLm {
        &*self.model
    }

    /// Whose sampling rules the model's family follows.
    pub(crate) fn sampler(&self) -> SamplerRule {
        self.sampler
    }

    /// A sequence without tokens; with a history for drafts if they are wanted and the model has a draft head.
    pub(crate) fn new_state(&self, drafts: bool) -> SequenceState {
        let head = if drafts { self.model.draft_head() } else { None };
        let history = head.map(|head| DraftHistory::new(&*head));
        SequenceState { cache: self.model.new_cache(), history }
    }

    /// Runs one pass over the segments, each of another sequence, and appends them to their sequences. The logits that a
    /// segment wants are written to its place. Returns the streams of each window, as far as a draft head will read them.
    ///
    /// After an error, none of the sequences can go on.
    pub(crate) fn run(&self, segments: &mut [Segment<'_>]) -> Result<Vec<Option<Array>>, EngineError> {
        let mut batch: Vec<_> = segments.iter_mut().map(Segment::for_model).collect();
        let pass = self.model.build(&mut batch).map_err(failed)?;
        let mut pending: Vec<Array> = pass.logits.iter().cloned().collect();
        let (mut of_windows, mut first) = (Vec::with_capacity(segments.len()), 0);
        for Segment { tokens, state, wanted } in segments.iter_mut() {
            let mut streams = None;
            if let (Some(history), Some(all)) = (&mut state.history, &pass.streams) {
                let own = own_rows(all, first, tokens.len())?;
                if let Wanted::AfterPrompt(_) = wanted {
                    note(history, Some(&own), tokens)?;
                    self.catch_up(history)?;
                } else {
                    pending.push(own.clone());
                    streams = Some(own);
                }
            }
            of_windows.push(streams);
            pending.extend(state.pending());
            first += tokens.len();
        }
        eval(&pending.iter().collect::<Vec<_>>()).map_err(|error| failed(error.into()))?;
        if let Some(logits) = &pass.logits {
            hand_out(logits, segments).map_err(|error| failed(error.into()))?;
        }
        Ok(of_windows)
    }

    /// One draft: goes on by `token` and writes the head's logits after it to `row`. False if there is nothing to go on from.
    /// What the history needs besides is evaluated with the next pass of the model.
    pub(crate) fn draft(
        &self,
        token: u32,
        history: &mut DraftHistory,
        row: &mut Vec<f32>,
    ) -> Result<bool, EngineError> {
        let Some(head) = self.model.draft_head() else { return Ok(false) };
        let Some(streams) = history.draft(&*head, token).map_err(failed)? else { return Ok(false) };
        let logits = head.logits(&streams).map_err(failed)?;
        logits.read_f32(row).map_err(|error| failed(error.into()))?;
        Ok(true)
    }

    /// Ends the drafts of a cycle: the history is that of certain tokens again.
    pub(crate) fn end_drafts(&self, history: &mut DraftHistory) -> Result<(), EngineError> {
        history.end_chain().map_err(failed)
    }

    /// Brings the head's history up to what was noted.
    pub(crate) fn catch_up(&self, history: &mut DraftHistory) -> Result<(), EngineError> {
        let Some(head) = self.model.draft_head() else { return Ok(()) };
        history.catch_up(&*head).map_err(failed)
    }
}

/// Notes `tokens` with their streams, which come first in `streams`.
pub(crate) fn note(
    history: &mut DraftHistory,
    streams: Option<&Array>,
    tokens: &[u32],
) -> Result<(), EngineError> {
    streams.map_or(Ok(()), |streams| history.note(streams, tokens).map_err(failed))
}

/// The rows of one segment. A copy where there are others: a view would keep theirs alive.
fn own_rows(all: &Array, first: usize, count: usize) -> Result<Array, EngineError> {
    if all.shape()[0] == count {
        return Ok(all.clone());
    }
    ops::slice_rows(all, first, count).and_then(|rows| ops::copy(&rows)).map_err(|error| failed(error.into()))
}

/// Writes logits [R, V] to where they are wanted.
fn hand_out(logits: &Array, segments: &mut [Segment<'_>]) -> Result<(), ArrayError> {
    let mut first = 0;
    for Segment { tokens, wanted, .. } in segments {
        let (place, count) = match wanted {
            Wanted::AfterPrompt(None) => continue,
            Wanted::AfterPrompt(Some(row)) => (row, 1),
            Wanted::AfterEach(rows) => (rows, tokens.len()),
        };
        ops::slice_rows(logits, first, count)?.read_f32(place)?;
        first += count;
    }
    Ok(())
}

fn failed(error: ModelError) -> EngineError {
    EngineError::Model { reason: error.to_string() }
}
