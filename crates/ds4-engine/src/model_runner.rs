//! Runs passes of the model, and of its draft head, for one sequence.
//!
//! A pass evaluates everything that hangs on it at once: logits, caches, and what an earlier cycle left to be computed.

use ds4_array::{Array, eval};
use ds4_engine_api::EngineError;
use ds4_models::{BatchSegment, CausalLm, LogitRows, ModelError, SamplerRule, SequenceCache};

use crate::draft_history::DraftHistory;
use crate::state::SequenceState;

pub(crate) struct ModelRunner {
    model: Box<dyn CausalLm>,
    sampler: SamplerRule,
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

    /// Appends tokens of a prompt; writes the logits after the last one to `row` if there is a place for them.
    pub(crate) fn prefill(
        &self,
        tokens: &[u32],
        state: &mut SequenceState,
        row: Option<&mut Vec<f32>>,
    ) -> Result<(), EngineError> {
        let logits = if row.is_some() { LogitRows::Last } else { LogitRows::None };
        let mut batch = [BatchSegment { tokens, cache: &mut state.cache, logits }];
        let pass = self.model.build(&mut batch).map_err(failed)?;
        if let Some(history) = &mut state.history {
            note(history, pass.streams.as_ref(), tokens)?;
            self.catch_up(history)?;
        }
        evaluate(&state.cache, state.history.as_ref(), pass.logits.as_ref())?;
        match (row, pass.logits) {
            (Some(row), Some(logits)) => logits.read_f32(row).map_err(|error| failed(error.into())),
            _ => Ok(()),
        }
    }

    /// Appends a window and writes the logits after each of its tokens to `rows`, [L, V]. Returns the streams.
    pub(crate) fn check(
        &self,
        window: &[u32],
        state: &mut SequenceState,
        rows: &mut Vec<f32>,
    ) -> Result<Option<Array>, EngineError> {
        let mut batch = [BatchSegment { tokens: window, cache: &mut state.cache, logits: LogitRows::All }];
        let pass = self.model.build(&mut batch).map_err(failed)?;
        evaluate(&state.cache, state.history.as_ref(), pass.logits.as_ref())?;
        if let Some(logits) = pass.logits {
            logits.read_f32(rows).map_err(|error| failed(error.into()))?;
        }
        Ok(pass.streams)
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

fn evaluate(
    cache: &SequenceCache,
    history: Option<&DraftHistory>,
    logits: Option<&Array>,
) -> Result<(), EngineError> {
    let mut arrays = cache.pending();
    arrays.extend(history.map(DraftHistory::pending).unwrap_or_default());
    arrays.extend(logits.cloned());
    eval(&arrays.iter().collect::<Vec<_>>()).map_err(|error| failed(error.into()))
}

fn failed(error: ModelError) -> EngineError {
    EngineError::Model { reason: error.to_string() }
}
