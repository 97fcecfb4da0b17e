//! One request while it is live: its tokens, caches, decoder and clock.

use std::ops::Range;
use std::time::Instant;

use ds4_array::Array;
use ds4_engine_api::{
    CancelToken, EngineError, Event, EventSink, FinishReason, Flow, GenerateRequest, SpeculationUsage, Token,
    Usage,
};
use ds4_models::CacheSize;
use ds4_session_store::SnapshotKind;
use tracing::warn;

use crate::decoding::Decoding;
use crate::model_runner::{ModelRunner, Pass, Segment};
use crate::pace::Experience;
use crate::panics::caught;
use crate::sessions::{Boundary, Lease, Sessions};
use crate::state::SequenceState;
use crate::time_share::Left;

/// Tokens of an answer that memory is reckoned with in advance, where more are allowed: hardly any answer is as long as it
/// may be.
const EXPECTED_ANSWER: usize = 4096;

pub(crate) struct Sequence {
    request: GenerateRequest,
    outlet: Outlet,
    seed: u64,
    submitted: Instant,
    lease: Option<Lease>,
    /// Present while it runs.
    live: Option<Live>,
    progress: Progress,
}

/// Where events go, and whether anybody still wants them.
struct Outlet {
    sink: Box<dyn EventSink>,
    cancel: CancelToken,
}

impl Outlet {
    /// A listener that panics is one that has gone.
    fn send(&mut self, event: Event) {
        let flow = caught(|| self.sink.send(event)).inspect_err(|error| warn!(%error, "a listener is gone"));
        if flow.unwrap_or(Flow::Stop) == Flow::Stop {
            self.cancel.cancel();
        }
    }
}

/// What exists from the first step on.
struct Live {
    state: SequenceState,
    cached: usize,
    next: Next,
    /// Where states are kept on the way through the prompt, the next one last.
    boundaries: Vec<Boundary>,
    /// Where a state on that way was not kept in memory: nobody is to wait for one like it, or for later ones, which begin with
    /// the same tokens.
    refused: Option<usize>,
    decoding: Decoding,
    /// What the loop knows of drafting so far.
    told: SpeculationUsage,
    started: Instant,
    first_token: Option<Instant>,
}

impl Live {
    /// How far a prompt of so many tokens is read before a state is kept.
    fn border(&self, prompt: usize) -> usize {
        self.boundaries.last().map_or(prompt, |boundary| boundary.at)
    }
}

/// What the sequence brings to the next pass.
#[derive(Clone, Debug)]
enum Next {
    /// These tokens of the prompt.
    Prompt(Range<usize>),
    /// The window of its decoding.
    Window,
}

/// Work done since the loop last asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) prefilled: usize,
    /// A state may have been kept on the way through the prompt.
    pub(crate) reached_boundary: bool,
    pub(crate) cached: usize,
    pub(crate) generated: usize,
    pub(crate) speculation: SpeculationUsage,
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
        Self {
            request,
            outlet,
            seed,
            submitted: Instant::now(),
            lease: None,
            live: None,
            progress: Progress::default(),
        }
    }

    pub(crate) fn send(&mut self, event: Event) {
        self.outlet.send(event);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.outlet.cancel.is_cancelled()
    }

    /// How it ends if it is cancelled.
    pub(crate) fn end_reason(&self) -> FinishReason {
        self.outlet.cancel.reason()
    }

    pub(crate) fn take_progress(&mut self) -> Progress {
        let mut progress = std::mem::take(&mut self.progress);
        if let Some(live) = &mut self.live {
            let now = live.decoding.usage();
            progress.speculation = now.since(&live.told);
            live.told = now;
        }
        progress
    }

    /// The storages of its caches, as (key, bytes).
    pub(crate) fn storages(&self) -> Vec<(usize, u64)> {
        self.live.as_ref().map_or_else(Vec::new, |live| live.state.storages())
    }

    /// Bytes of caches to expect of it, or that it has if that is more.
    pub(crate) fn needed_cache_bytes(&self, size: CacheSize, context: usize) -> u64 {
        let answer = self.request.max_tokens.min(EXPECTED_ANSWER);
        let expected = size.bytes((self.request.prompt.len() + answer).min(context));
        expected.max(self.live.as_ref().map_or(0, |live| live.state.cache.bytes() as u64))
    }

    /// Prepares the first step: finds the state to start from. `context` is the most tokens of a sequence.
    pub(crate) fn begin(
        &mut self,
        runner: &ModelRunner,
        sessions: &mut Sessions,
        context: usize,
        experience: &Experience,
    ) -> Result<(), EngineError> {
        let prompt = &self.request.prompt;
        let prompt_tokens = prompt.len();
        let start = sessions.start(prompt, &self.request.session, runner);
        self.lease = Some(start.lease);
        // Whoever goes on from a state that is kept may want drafts, and gets the same tokens whoever has left it.
        let drafts = self.request.speculation.mode.drafts() || sessions.keeps(&self.request.session);
        let state = start.state.unwrap_or_else(|| runner.new_state(drafts));
        let max_tokens = self.request.max_tokens.min(context - prompt_tokens);
        let has_history = state.history.is_some();
        let decoding = Decoding::new(
            &self.request,
            self.seed,
            max_tokens,
            runner.sampler(),
            has_history,
            experience.clone(),
        )?;
        let cached = state.tokens();
        let mut boundaries = match sessions.keeps(&self.request.session) {
            true => sessions.boundaries(cached, prompt_tokens, self.request.shared_prefix),
            false => Vec::new(),
        };
        boundaries.reverse();
        self.progress.cached = cached;
        self.outlet.send(Event::Started {
            cached_tokens: cached,
            prompt_tokens,
            seed: self.seed,
            session: sessions.name(start.lease).to_owned(),
            miss: start.miss.map(|miss| miss.name().to_owned()),
        });
        self.live = Some(Live {
            state,
            cached,
            next: Next::Window,
            boundaries,
            refused: None,
            decoding,
            told: SpeculationUsage::default(),
            started: Instant::now(),
            first_token: None,
        });
        Ok(())
    }

    /// Tokens of the prompt that are left to be read: in all, and before the next state is kept. 0 if it does not run.
    pub(crate) fn left_to_read(&self) -> Left {
        let Some(live) = &self.live else { return Left::default() };
        let (done, all) = (live.state.tokens(), self.request.prompt.len());
        Left { all: all.saturating_sub(done), now: live.border(all).saturating_sub(done) }
    }

    /// How much of another's prompt will be known when this one has read its own: the longest beginning of it of which a state is
    /// going to be kept in memory.
    pub(crate) fn will_know(&self, other: &Self, sessions: &Sessions) -> usize {
        let is_removed = self.lease.is_none_or(|lease| sessions.is_removed(lease));
        let Some(live) = self.live.as_ref().filter(|_| !is_removed) else { return 0 };
        let (own, others) = (&self.request.prompt, &other.request.prompt);
        // The next boundary is the last of the list. One token of a prompt is always left to run.
        let is_shared = |at: usize| at < others.len() && own[..at] == others[..at];
        live.boundaries.iter().map(|boundary| boundary.at).find(|&at| is_shared(at)).unwrap_or(0)
    }

    /// Whether memory had no room for a state of this one with which another's prompt begins as well.
    pub(crate) fn could_not_keep(&self, other: &Self) -> bool {
        let refused = self.live.as_ref().and_then(|live| live.refused);
        refused.is_some_and(|at| other.request.prompt.starts_with(&self.request.prompt[..at]))
    }

    pub(crate) fn prompt(&self) -> &[u32] {
        &self.request.prompt
    }

    /// Prepares what it brings to the next pass, which serves so many `others`: at most `most` tokens of the prompt, or a window
    /// of the answer.
    pub(crate) fn prepare(&mut self, runner: &ModelRunner, most: usize, others: usize) -> Outcome {
        let live = self.live.as_mut()?;
        let (done, total) = (live.state.tokens(), self.request.prompt.len());
        if done < total {
            live.next = Next::Prompt(done..live.border(total).min(done + most));
            return None;
        }
        live.next = Next::Window;
        self.decode(|live, out| live.decoding.begin(runner, &mut live.state, others, out))
    }

    /// What was prepared.
    pub(crate) fn segment(&mut self) -> Option<Segment<'_>> {
        let Live { state, decoding, next, .. } = self.live.as_mut()?;
        let prompt = &self.request.prompt;
        Some(match next {
            Next::Prompt(range) => decoding.prompt(&prompt[range.clone()], range.end == prompt.len(), state),
            Next::Window => decoding.window(state),
        })
    }

    /// Takes up what the pass has shown, with the streams of its window.
    pub(crate) fn settle(
        &mut self,
        sessions: &mut Sessions,
        pass: &Pass,
        streams: Option<&Array>,
    ) -> Outcome {
        let live = self.live.as_mut()?;
        let Next::Prompt(Range { start, end }) = live.next else {
            return self.decode(|live, out| live.decoding.settle(&mut live.state, pass, streams, out));
        };
        self.progress.prefilled += end - start;
        if let Some(reached) = live.boundaries.pop_if(|boundary| boundary.at == end) {
            self.progress.reached_boundary = true;
            let tokens = &self.request.prompt[..end];
            let is_kept =
                self.lease.is_some_and(|lease| sessions.keep(lease, tokens, reached.kind, &live.state));
            if !is_kept {
                live.refused = Some(end);
            }
        }
        self.outlet.send(Event::Prefill { done: end, total: self.request.prompt.len() });
        None
    }

    /// A part of a decode cycle, whose tokens are sent and counted.
    fn decode(
        &mut self,
        part: impl FnOnce(&mut Live, &mut dyn FnMut(Vec<Token>)) -> Result<Option<FinishReason>, EngineError>,
    ) -> Outcome {
        let live = self.live.as_mut()?;
        let (outlet, progress, mut count) = (&mut self.outlet, &mut self.progress, 0);
        let outcome = part(live, &mut |tokens: Vec<Token>| {
            count += tokens.len();
            if !tokens.is_empty() {
                outlet.send(Event::Tokens(tokens));
            }
        });
        if count > 0 {
            live.first_token.get_or_insert_with(Instant::now);
        }
        progress.generated += count;
        outcome.transpose()
    }

    /// Keeps what the request leaves behind. The state may be a token short of the answer, never ahead of it: the token
    /// sampled last was not run, and whoever continues runs it.
    pub(crate) fn keep(&mut self, runner: &ModelRunner, sessions: &mut Sessions) {
        let Some(live) = self.live.as_mut().filter(|_| self.request.session.keeps) else { return };
        let mut timeline = std::mem::take(&mut self.request.prompt);
        timeline.extend_from_slice(live.decoding.tokens());
        let tokens = live.state.tokens();
        let caught_up = live.state.history.as_mut().map_or(Ok(()), |history| runner.catch_up(history));
        if let Err(error) = caught_up {
            warn!(%error, "the draft head cannot follow: the state is not kept");
        } else if tokens > live.cached && tokens <= timeline.len() {
            let tokens = &timeline[..tokens];
            self.lease.map(|lease| sessions.keep(lease, tokens, SnapshotKind::TurnEnd, &live.state));
        }
    }

    /// Lets go of the session, whatever the request came to. Returns what it has shown of drafts.
    pub(crate) fn leave(self, sessions: &mut Sessions) -> Option<Experience> {
        if let Some(lease) = self.lease {
            sessions.release(lease);
        }
        self.live?.decoding.into_experience()
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
            cached_tokens: live.cached,
            completion_tokens: live.decoding.tokens().len(),
            queue_seconds: (live.started - self.submitted).as_secs_f64(),
            prefill_seconds: (first - live.started).as_secs_f64(),
            decode_seconds: (now - first).as_secs_f64(),
            speculation: live.decoding.usage(),
        }
    }
}
