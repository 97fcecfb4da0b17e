//! A scripted [`Engine`] for tests of everything above it. It keeps the promises of the trait (order of events, one
//! request at a time, cancelling, the errors of `submit`), and has no model: each request plays the next script.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ds4_engine_api::{
    CancelToken, Engine, EngineError, EngineStatus, Event, EventSink, FinishReason, Flow, GenerateRequest,
    ModelInfo, SessionSummary, Token, TokenLogprob, TokenLogprobs, Usage,
};

/// What the engine does for one request, in order. After the last action the request finishes with
/// [`FinishReason::Stop`]; a stop token, `max_tokens` and a cancel end it earlier, as in a real engine.
pub type Script = Vec<Action>;

/// One thing that the engine does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Emits the tokens of a pass.
    Pass(Vec<u32>),
    /// Reports prefill progress.
    Prefill {
        /// Prompt tokens processed so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// Says that this many prompt tokens were cached. Only as the first action.
    Cached(usize),
    /// Is busy for a while; a cancel ends it.
    Sleep(Duration),
    /// Is busy until the request is cancelled.
    WaitForCancel,
    /// Fails.
    Fail(EngineError),
}

/// Makes the script of a request that none was queued for.
pub type Responder = Box<dyn Fn(&GenerateRequest) -> Script + Send>;

/// Tokens, one after the other.
pub fn tokens(ids: &[u32]) -> Script {
    passes(ids, 1)
}

/// Tokens in passes of `size`.
pub fn passes(ids: &[u32], size: usize) -> Script {
    ids.chunks(size).map(|ids| Action::Pass(ids.to_vec())).collect()
}

/// How one request ended, and what it asked for.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The request as the engine got it.
    pub request: GenerateRequest,
    /// `Err` if its script failed.
    pub outcome: Result<FinishReason, EngineError>,
    /// Whether the engine had taken it up; false if it was cancelled in the queue.
    pub started: bool,
}

/// A scripted engine. See the module's description.
pub struct FakeEngine {
    model: ModelInfo,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    queue_limit: usize,
}

struct Job {
    request: GenerateRequest,
    sink: Box<dyn EventSink>,
    cancel: CancelToken,
    script: Script,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    scripts: VecDeque<Script>,
    responder: Option<Responder>,
    refusals: VecDeque<EngineError>,
    status: EngineStatus,
    ended: Vec<Ended>,
    sessions: Vec<SessionSummary>,
}

impl FakeEngine {
    /// An engine with the given model, whose queue takes `queue_limit` waiting requests.
    pub fn new(model: ModelInfo, queue_limit: usize) -> Self {
        let (jobs, queue) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let worker = Arc::clone(&shared);
        std::thread::spawn(move || worker.run(&queue));
        Self { model, jobs, shared, queue_limit }
    }

    /// Answers requests that find no queued script. Without a responder they are answered with nothing.
    pub fn respond_with(&self, responder: Responder) {
        self.shared.lock().responder = Some(responder);
    }

    /// Appends a script: the next request that comes plays it.
    pub fn push(&self, script: Script) {
        self.shared.lock().scripts.push_back(script);
    }

    /// Sets the sessions that are kept.
    pub fn set_sessions(&self, sessions: Vec<SessionSummary>) {
        self.shared.lock().sessions = sessions;
    }

    /// Stops as an engine does whose thread has ended.
    pub fn stop(&self, reason: &str) {
        self.shared.lock().status.stopped = Some(reason.to_owned());
    }

    /// Makes the next `submit` return this error.
    pub fn refuse(&self, error: EngineError) {
        self.shared.lock().refusals.push_back(error);
    }

    /// Waits until `count` requests have ended, and returns them in that order; `None` after `timeout`.
    pub fn wait_ended(&self, count: usize, timeout: Duration) -> Option<Vec<Ended>> {
        self.wait(timeout, |state| state.ended.len() >= count).map(|state| state.ended.clone())
    }

    /// Waits until `running` requests run and `waiting` wait; false after `timeout`.
    pub fn wait_load(&self, running: usize, waiting: usize, timeout: Duration) -> bool {
        self.wait(timeout, |state| state.status.running == running && state.status.waiting == waiting)
            .is_some()
    }

    fn wait(&self, timeout: Duration, ready: impl Fn(&State) -> bool) -> Option<MutexGuard<'_, State>> {
        let guard = self.shared.lock();
        let (guard, _) = self
            .shared
            .changed
            .wait_timeout_while(guard, timeout, |state| !ready(state))
            .unwrap_or_else(PoisonError::into_inner);
        ready(&guard).then_some(guard)
    }

    fn check(&self, request: &GenerateRequest) -> Result<(), EngineError> {
        let (vocabulary, context) = (self.model.vocabulary, self.model.context);
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if let Some(&token) = request.prompt.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(EngineError::TokenOutOfRange { token, vocabulary });
        }
        if request.prompt.len() >= context {
            return Err(EngineError::ContextLengthExceeded { prompt_tokens: request.prompt.len(), context });
        }
        Ok(())
    }
}

impl Engine for FakeEngine {
    fn submit(
        &self,
        request: GenerateRequest,
        mut sink: Box<dyn EventSink>,
    ) -> Result<CancelToken, EngineError> {
        self.check(&request)?;
        let mut state = self.shared.lock();
        if state.status.stopped.is_some() {
            return Err(EngineError::Stopped);
        }
        if let Some(error) = state.refusals.pop_front() {
            return Err(error);
        }
        if state.status.waiting >= self.queue_limit {
            return Err(EngineError::QueueFull { waiting: state.status.waiting });
        }
        let ahead = state.status.running + state.status.waiting;
        state.status.waiting += 1;
        let script = match (state.scripts.pop_front(), &state.responder) {
            (Some(script), _) => script,
            (None, Some(respond)) => respond(&request),
            (None, None) => Script::new(),
        };
        drop(state);
        let cancel = CancelToken::new();
        if sink.send(Event::Queued { ahead }) == Flow::Stop {
            cancel.cancel();
        }
        let job = Job { request, sink, cancel: cancel.clone(), script };
        self.jobs.send(job).map_err(|_| EngineError::Stopped)?;
        self.shared.changed.notify_all();
        Ok(cancel)
    }

    fn status(&self) -> EngineStatus {
        self.shared.lock().status.clone()
    }

    fn model(&self) -> &ModelInfo {
        &self.model
    }

    fn sessions(&self) -> Vec<SessionSummary> {
        self.shared.lock().sessions.clone()
    }

    fn remove_session(&self, id: &str) -> Result<bool, EngineError> {
        let mut state = self.shared.lock();
        let before = state.sessions.len();
        state.sessions.retain(|session| session.id != id);
        Ok(state.sessions.len() < before)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's thread. Cancelled requests leave the queue even while another one runs.
    fn run(&self, jobs: &Receiver<Job>) {
        let mut queue = VecDeque::new();
        loop {
            if queue.is_empty() {
                match jobs.recv() {
                    Ok(job) => queue.push_back(job),
                    Err(_) => return,
                }
            }
            let Some(mut job) = queue.pop_front() else { continue };
            let mut play = Play { queue: &mut queue, jobs, shared: self };
            play.request(&mut job);
        }
    }

    fn end(&self, job: &mut Job, outcome: Result<FinishReason, EngineError>, usage: Usage, started: bool) {
        let mut state = self.lock();
        let status = &mut state.status;
        if started {
            status.running -= 1;
        } else {
            status.waiting -= 1;
        }
        status.completed += 1;
        status.cancelled += u64::from(outcome == Ok(FinishReason::Cancelled));
        status.failed += u64::from(outcome.is_err());
        status.prefill_tokens += usage.prompt_tokens as u64;
        status.decode_tokens += usage.completion_tokens as u64;
        state.ended.push(Ended { request: job.request.clone(), outcome: outcome.clone(), started });
        drop(state);
        let last = match outcome {
            Ok(reason) => Event::Finished { reason, usage },
            Err(error) => Event::Failed(error),
        };
        // Nobody has to be there any more.
        let _ = job.sink.send(last);
        self.changed.notify_all();
    }
}

/// One running request with the queue behind it.
struct Play<'a> {
    queue: &'a mut VecDeque<Job>,
    jobs: &'a Receiver<Job>,
    shared: &'a Shared,
}

impl Play<'_> {
    fn request(&mut self, job: &mut Job) {
        if job.cancel.is_cancelled() {
            return self.shared.end(job, Ok(FinishReason::Cancelled), Usage::default(), false);
        }
        let mut state = self.shared.lock();
        state.status.waiting -= 1;
        state.status.running += 1;
        drop(state);
        self.shared.changed.notify_all();
        let script = std::mem::take(&mut job.script);
        let cached_tokens = match script.first() {
            Some(Action::Cached(count)) => *count,
            _ => 0,
        };
        let prompt_tokens = job.request.prompt.len();
        let mut usage = Usage { prompt_tokens, cached_tokens, ..Usage::default() };
        let seed = job.request.sampling.seed.unwrap_or(1);
        let session = job.request.session.id.clone().unwrap_or_else(|| "fake".to_owned());
        let miss = (cached_tokens == 0).then(|| "new_session".to_owned());
        emit(job, Event::Started { cached_tokens, prompt_tokens, seed, session, miss });
        let outcome = self.script(job, script, &mut usage);
        self.shared.end(job, outcome, usage, true);
    }

    fn script(
        &mut self,
        job: &mut Job,
        script: Script,
        usage: &mut Usage,
    ) -> Result<FinishReason, EngineError> {
        for action in script {
            match action {
                Action::Pass(ids) => {
                    let (tokens, end) = pass(&job.request, ids, usage);
                    emit(job, Event::Tokens(tokens));
                    if let Some(reason) = end {
                        return Ok(reason);
                    }
                }
                Action::Prefill { done, total } => emit(job, Event::Prefill { done, total }),
                Action::Cached(_) => {}
                Action::Sleep(time) => self.busy(job, Some(time)),
                Action::WaitForCancel => self.busy(job, None),
                Action::Fail(error) => return Err(error),
            }
            if job.cancel.is_cancelled() {
                return Ok(FinishReason::Cancelled);
            }
        }
        Ok(FinishReason::Stop)
    }

    fn busy(&mut self, job: &Job, time: Option<Duration>) {
        let start = Instant::now();
        while !job.cancel.is_cancelled() && time.is_none_or(|time| start.elapsed() < time) {
            self.queue.extend(self.jobs.try_iter());
            let waiting = std::mem::take(self.queue);
            for mut job in waiting {
                if job.cancel.is_cancelled() {
                    self.shared.end(&mut job, Ok(FinishReason::Cancelled), Usage::default(), false);
                } else {
                    self.queue.push_back(job);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn emit(job: &mut Job, event: Event) {
    if job.sink.send(event) == Flow::Stop {
        job.cancel.cancel();
    }
}

/// The tokens `ids` as far as a request wants them, and why no more if the answer ends there.
fn pass(request: &GenerateRequest, ids: Vec<u32>, usage: &mut Usage) -> (Vec<Token>, Option<FinishReason>) {
    let mut tokens = Vec::new();
    for id in ids {
        usage.completion_tokens += 1;
        tokens.push(Token { id, logprobs: request.logprobs.map(|count| fake_logprobs(id, count)) });
        if request.stop_tokens.contains(&id) {
            return (tokens, Some(FinishReason::Stop));
        }
        if usage.completion_tokens == request.max_tokens {
            return (tokens, Some(FinishReason::Length));
        }
    }
    (tokens, None)
}

/// The chosen token at -0.25, then the ids after it, each 1 below the one before.
fn fake_logprobs(id: u32, count: usize) -> TokenLogprobs {
    let at = |rank: u32| TokenLogprob { id: id + rank, logprob: -0.25 - rank as f32 };
    TokenLogprobs { chosen: at(0), top: (0..count as u32).map(at).collect() }
}
