//! Answers that are driven by hand, a cycle at a time: for checks and measurements that need the state between two cycles.
//!
//! The same passes and decisions as in the engine's loop, without its thread, queue and events.

use std::time::Instant;

use ds4_engine_api::{EngineError, FinishReason, GenerateRequest};
use ds4_models::{CausalLm, LoadedModel, SequenceCache};

use crate::decoding::Decoding;
use crate::model_runner::{ModelRunner, Pass};
use crate::pace::Experience;
use crate::state::SequenceState;

/// A model whose answers are driven by hand.
pub struct Stepper {
    runner: ModelRunner,
}

/// An answer in progress.
pub struct SteppedAnswer<'a> {
    runner: &'a ModelRunner,
    state: SequenceState,
    decoding: Decoding,
}

impl Stepper {
    /// Takes a model.
    pub fn new(loaded: LoadedModel) -> Self {
        Self { runner: ModelRunner::new(loaded.model, loaded.sampler) }
    }

    /// The model.
    pub fn model(&self) -> &dyn CausalLm {
        self.runner.model()
    }

    /// Reads the prompt. Limits of context and vocabulary are the caller's to keep.
    pub fn start(&self, request: &GenerateRequest) -> Result<SteppedAnswer<'_>, EngineError> {
        let seed = request.sampling.seed.unwrap_or_default();
        let mut state = self.runner.new_state(request.speculation.mode.drafts());
        let (rule, has_history) = (self.runner.sampler(), state.history.is_some());
        let experience = Experience::default();
        let mut decoding = Decoding::new(request, seed, request.max_tokens, rule, has_history, experience)?;
        self.runner.run(&mut [decoding.prompt(&request.prompt, true, &mut state)])?;
        Ok(SteppedAnswer { runner: &self.runner, state, decoding })
    }
}

impl SteppedAnswer<'_> {
    /// Runs one cycle; tells if the answer is complete.
    pub fn cycle(&mut self) -> Result<Option<FinishReason>, EngineError> {
        let Self { runner, state, decoding } = self;
        let finished = decoding.begin(runner, state, 0, &mut |_| {})?;
        if finished.is_some() {
            return Ok(finished);
        }
        let started = Instant::now();
        let streams = runner.run(&mut [decoding.window(state)])?;
        let pass = Pass { seconds: started.elapsed().as_secs_f64(), is_alone: true };
        decoding.settle(state, &pass, streams[0].as_ref(), &mut |_| {})
    }

    /// The answer so far. The last token may be one that no pass has read yet.
    pub fn tokens(&self) -> &[u32] {
        self.decoding.tokens()
    }

    /// The state, which stands for the prompt and the answer as far as passes have read it.
    pub fn cache(&self) -> &SequenceCache {
        &self.state.cache
    }
}
