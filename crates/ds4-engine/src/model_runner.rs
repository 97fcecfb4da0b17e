//! Runs the model for one sequence: a prefill chunk or a decode step.

use ds4_engine_api::EngineError;
use ds4_models::{BatchSegment, CausalLm, LogitRows, SequenceCache};

/// The model and a reused row of logits on the host.
pub(crate) struct ModelRunner {
    model: Box<dyn CausalLm>,
    logits: Vec<f32>,
}

impl ModelRunner {
    pub(crate) fn new(model: Box<dyn CausalLm>) -> Self {
        Self { model, logits: Vec::new() }
    }

    pub(crate) fn new_cache(&self) -> SequenceCache {
        self.model.new_cache()
    }

    /// Appends tokens to the caches without looking at logits.
    pub(crate) fn prefill(&mut self, tokens: &[u32], cache: &mut SequenceCache) -> Result<(), EngineError> {
        self.forward(tokens, cache, LogitRows::None)
    }

    /// Appends tokens and returns the logits after the last one, [V].
    pub(crate) fn step(&mut self, tokens: &[u32], cache: &mut SequenceCache) -> Result<&[f32], EngineError> {
        self.forward(tokens, cache, LogitRows::Last)?;
        Ok(&self.logits)
    }

    fn forward(
        &mut self,
        tokens: &[u32],
        cache: &mut SequenceCache,
        logits: LogitRows,
    ) -> Result<(), EngineError> {
        let failed = |error: &dyn std::fmt::Display| EngineError::Model { reason: error.to_string() };
        let mut batch = [BatchSegment { tokens, cache, logits }];
        match self.model.forward(&mut batch).map_err(|error| failed(&error))?.logits {
            Some(row) => row.read_f32(&mut self.logits).map_err(|error| failed(&error)),
            None => Ok(()),
        }
    }
}
