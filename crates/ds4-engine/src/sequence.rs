//! One request while it is live: its tokens, caches, decoder and clock.

use std::time::Instant;

use ds4_engine_api::{
    CancelToken, EngineError, Event, EventSink, FinishReason, Flow, GenerateRequest, SpeculationUsage, Usage,
};
use ds4_models::SequenceCache;

use crate::chunk_size::ChunkSize;
use crate::decoding::Decoding;
use crate::model_runner::ModelRunner;

pub(crate) struct Sequence {
    request: GenerateRequest,
    outlet: Outlet,
    seed: u64,
    submitted: Instant,
    live: Option<Live>,
    progress: Progress,
}

/// Where events go, and whether anybody still wants them.
struct Outlet {
    sink: Box<dyn EventSink>,
    cancel: CancelToken,
}

impl Outlet {
    fn send(&mut self, event: Event) {
        if self.sink.send(event) == Flow::Stop {
            self.cancel.cancel();
        }
    }
}

/// What exists from the first step on.
struct Live {
    cache: SequenceCache,
    decoding: Decoding,
    started: Instant,
    first_token: Option<Instant>,
}

/// Work done since the loop last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) prefilled: usize,
    pub(crate) generated: usize,
    pub(crate) drafted: u64,
    pub(crate) accepted: u64,
    pub(crate) passes: u64,
}

/// What a step came to: `None` if there is more to do.
pub(crate) type Outcome = Option<Result<FinishReason, EngineError>>;

impl Sequence {
    pub(crate) fn new(
        request: GenerateRequest,
        sink: Box<dyn EventSink>,
        cancel: CancelToken,
        seed: u64,
    ) -> Self {
        let outlet = Outlet { sink, cancel };
        Self { request, outlet, seed, submitted: Instant::now(), live: None, progress: Progress::default() }
    }

    pub(crate) fn send(&mut self, event: Event) {
        self.outlet.send(event);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.outlet.cancel.is_cancelled()
    }

    pub(crate) fn take_progress(&mut self) -> Progress {
        std::mem::take(&mut self.progress)
    }

    pub(crate) fn cache_bytes(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.cache.bytes())
    }

    /// Prepares the first step. `context` is the most tokens of a sequence.
    pub(crate) fn begin(&mut self, runner: &ModelRunner, context: usize) -> Result<(), EngineError> {
        let prompt_tokens = self.request.prompt.len();
        let max_tokens = self.request.max_tokens.min(context - prompt_tokens);
        self.live = Some(Live {
            cache: runner.new_cache(),
            decoding: Decoding::new(&self.request, self.seed, max_tokens, runner)?,
            started: Instant::now(),
            first_token: None,
        });
        self.send(Event::Started { cached_tokens: 0, prompt_tokens, seed: self.seed });
        Ok(())
    }

    /// One prefill chunk or one decode cycle.
    pub(crate) fn step(&mut self, runner: &ModelRunner, chunk: &mut ChunkSize) -> Outcome {
        if self.is_cancelled() {
            return Some(Ok(FinishReason::Cancelled));
        }
        self.run(runner, chunk).transpose()
    }

    fn run(
        &mut self,
        runner: &ModelRunner,
        chunk: &mut ChunkSize,
    ) -> Result<Option<FinishReason>, EngineError> {
        let Some(live) = &mut self.live else { return Ok(Some(FinishReason::Cancelled)) };
        let (done, total) = (live.cache.tokens(), self.request.prompt.len());
        if done < total {
            let tokens = &self.request.prompt[done..total.min(done + chunk.tokens())];
            let (started, end) = (Instant::now(), done + tokens.len());
            live.decoding.prefill(runner, tokens, &mut live.cache, end == total)?;
            chunk.observe(tokens.len(), started.elapsed());
            self.progress.prefilled += tokens.len();
            self.outlet.send(Event::Prefill { done: end, total });
            return Ok(None);
        }
        let before = live.decoding.usage();
        let (outlet, progress, first_token) = (&mut self.outlet, &mut self.progress, &mut live.first_token);
        let reason = live.decoding.cycle(runner, &mut live.cache, &mut |(id, logprobs)| {
            first_token.get_or_insert_with(Instant::now);
            progress.generated += 1;
            outlet.send(Event::Token { id, logprobs });
        });
        progress.count(&before, &live.decoding.usage());
        reason
    }

    /// Sends the last event.
    pub(crate) fn end(&mut self, result: Result<FinishReason, EngineError>) {
        let event = match result {
            Ok(reason) => Event::Finished { reason, usage: self.usage() },
            Err(error) => Event::Failed(error),
        };
        self.send(event);
    }

    fn usage(&self) -> Usage {
        let now = Instant::now();
        let prompt_tokens = self.request.prompt.len();
        let Some(live) = &self.live else {
            let queue_seconds = (now - self.submitted).as_secs_f64();
            return Usage { prompt_tokens, queue_seconds, ..Usage::default() };
        };
        let first = live.first_token.unwrap_or(now);
        Usage {
            prompt_tokens,
            cached_tokens: 0,
            completion_tokens: live.decoding.generated(),
            queue_seconds: (live.started - self.submitted).as_secs_f64(),
            prefill_seconds: (first - live.started).as_secs_f64(),
            decode_seconds: (now - first).as_secs_f64(),
            speculation: live.decoding.usage(),
        }
    }
}

impl Progress {
    fn count(&mut self, before: &SpeculationUsage, after: &SpeculationUsage) {
        self.drafted += after.drafted - before.drafted;
        self.accepted += after.accepted + after.copied - before.accepted - before.copied;
        self.passes += after.verify_passes - before.verify_passes;
    }
}
