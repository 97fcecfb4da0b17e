//! One request while it is live: its tokens, caches, sampler and clock.

use std::time::Instant;

use ds4_engine_api::{
    CancelToken, EngineError, Event, EventSink, FinishReason, Flow, GenerateRequest, TokenLogprob,
    TokenLogprobs, Usage,
};
use ds4_models::SequenceCache;
use ds4_sampling::{Sampler, SamplerConfig, SamplerRule, SamplingError, logprobs};

use crate::chunk_size::ChunkSize;
use crate::model_runner::ModelRunner;

pub(crate) struct Sequence {
    request: GenerateRequest,
    sink: Box<dyn EventSink>,
    cancel: CancelToken,
    seed: u64,
    submitted: Instant,
    live: Option<Live>,
    /// Tokens processed since the loop last asked: prefilled, generated.
    progress: (usize, usize),
}

/// What exists from the first step on.
struct Live {
    cache: SequenceCache,
    sampler: Sampler,
    started: Instant,
    first_token: Option<Instant>,
    /// Sampled last and not yet in the caches.
    pending: u32,
    generated: usize,
    max_tokens: usize,
}

/// What a step came to.
pub(crate) enum Outcome {
    /// There is more to do.
    Continue,
    /// The request has ended, and its last event is sent.
    Ended(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    Cancelled,
    Failed,
}

impl Sequence {
    pub(crate) fn new(
        request: GenerateRequest,
        sink: Box<dyn EventSink>,
        cancel: CancelToken,
        seed: u64,
    ) -> Self {
        Self { request, sink, cancel, seed, submitted: Instant::now(), live: None, progress: (0, 0) }
    }

    pub(crate) fn send(&mut self, event: Event) {
        if self.sink.send(event) == Flow::Stop {
            self.cancel.cancel();
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Prefilled and generated tokens since the last call.
    pub(crate) fn take_progress(&mut self) -> (usize, usize) {
        std::mem::take(&mut self.progress)
    }

    pub(crate) fn cache_bytes(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.cache.bytes())
    }

    /// Prepares the first step. `context` is the most tokens of a sequence.
    pub(crate) fn begin(&mut self, runner: &ModelRunner, context: usize) -> Result<(), EngineError> {
        let prompt_tokens = self.request.prompt.len();
        let sampler = Sampler::new(sampler_config(&self.request, self.seed))
            .map_err(|error| EngineError::Model { reason: error.to_string() })?;
        self.live = Some(Live {
            cache: runner.new_cache(),
            sampler,
            started: Instant::now(),
            first_token: None,
            pending: 0,
            generated: 0,
            max_tokens: self.request.max_tokens.min(context - prompt_tokens),
        });
        self.send(Event::Started { cached_tokens: 0, prompt_tokens, seed: self.seed });
        Ok(())
    }

    /// One prefill chunk or one decode step.
    pub(crate) fn step(&mut self, runner: &mut ModelRunner, chunk: &mut ChunkSize) -> Outcome {
        if self.is_cancelled() {
            return self.end(Ok(FinishReason::Cancelled));
        }
        match self.run(runner, chunk) {
            Ok(None) => Outcome::Continue,
            Ok(Some(reason)) => self.end(Ok(reason)),
            Err(error) => self.end(Err(error)),
        }
    }

    fn run(
        &mut self,
        runner: &mut ModelRunner,
        chunk: &mut ChunkSize,
    ) -> Result<Option<FinishReason>, EngineError> {
        let Some(live) = &mut self.live else { return Ok(Some(FinishReason::Cancelled)) };
        let (done, total) = (live.cache.tokens(), self.request.prompt.len());
        let logits = if done < total {
            let tokens = &self.request.prompt[done..total.min(done + chunk.tokens())];
            let started = Instant::now();
            let last = done + tokens.len() == total;
            let logits = if last {
                Some(runner.step(tokens, &mut live.cache)?)
            } else {
                runner.prefill(tokens, &mut live.cache)?;
                None
            };
            chunk.observe(tokens.len(), started.elapsed());
            self.progress.0 += tokens.len();
            let event = Event::Prefill { done: done + tokens.len(), total };
            if self.sink.send(event) == Flow::Stop {
                self.cancel.cancel();
            }
            match logits {
                Some(logits) => logits,
                None => return Ok(None),
            }
        } else {
            runner.step(&[live.pending], &mut live.cache)?
        };
        let (id, logprobs) = live.choose(logits, self.request.logprobs)?;
        self.progress.1 += 1;
        let reason = live.accept(id, &self.request.stop_tokens);
        self.send(Event::Token { id, logprobs });
        Ok(reason)
    }

    /// Sends the last event.
    pub(crate) fn end(&mut self, result: Result<FinishReason, EngineError>) -> Outcome {
        let (event, ending) = match result {
            Ok(reason) => {
                let ending =
                    if reason == FinishReason::Cancelled { Ending::Cancelled } else { Ending::Complete };
                (Event::Finished { reason, usage: self.usage() }, ending)
            }
            Err(error) => (Event::Failed(error), Ending::Failed),
        };
        self.send(event);
        Outcome::Ended(ending)
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
            completion_tokens: live.generated,
            queue_seconds: (live.started - self.submitted).as_secs_f64(),
            prefill_seconds: (first - live.started).as_secs_f64(),
            decode_seconds: (now - first).as_secs_f64(),
        }
    }
}

impl Live {
    fn choose(
        &mut self,
        logits: &[f32],
        want: Option<usize>,
    ) -> Result<(u32, Option<TokenLogprobs>), EngineError> {
        let position = self.cache.tokens();
        let failed = |error| sampling_error(error, position);
        let id = self.sampler.sample(logits).map_err(failed)?;
        let Some(count) = want else { return Ok((id, None)) };
        let (logprob, top) = logprobs(logits, id, count).map_err(failed)?;
        let top = top.into_iter().map(|(id, logprob)| TokenLogprob { id, logprob }).collect();
        Ok((id, Some(TokenLogprobs { chosen: TokenLogprob { id, logprob }, top })))
    }

    fn accept(&mut self, id: u32, stop_tokens: &[u32]) -> Option<FinishReason> {
        self.first_token.get_or_insert_with(Instant::now);
        self.sampler.record(id);
        self.pending = id;
        self.generated += 1;
        if stop_tokens.contains(&id) {
            Some(FinishReason::Stop)
        } else if self.generated >= self.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        }
    }
}

fn sampler_config(request: &GenerateRequest, seed: u64) -> SamplerConfig {
    let sampling = &request.sampling;
    SamplerConfig {
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: u32::try_from(sampling.top_k).unwrap_or(u32::MAX),
        min_p: sampling.min_p,
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        logit_bias: sampling.logit_bias.clone(),
        seed,
        rule: SamplerRule::Mtplx,
    }
}

fn sampling_error(error: SamplingError, position: usize) -> EngineError {
    match error {
        SamplingError::NonFiniteLogit { token, value } => {
            EngineError::NonFiniteLogits { position, token, value }
        }
        other => EngineError::Model { reason: other.to_string() },
    }
}
