//! The engine as its users hold it: checks requests, hands them to the loop, and stops the loop when dropped.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use ds4_engine_api::{
    CancelToken, Engine, EngineError, EngineStatus, EventSink, GenerateRequest, ModelInfo, SessionSummary,
};
use ds4_models::{CacheSize, LoadedModel};
use ds4_session_store::Store;

use crate::engine_loop::{EngineLoop, Order};
use crate::model_runner::ModelRunner;
use crate::roster::Published;
use crate::sequence::Sequence;
use crate::sessions::{SessionOptions, Sessions};
use crate::status::Counters;

/// Choices of an engine.
#[derive(Clone)]
pub struct EngineOptions {
    /// Name that clients use for the model.
    pub model_id: String,
    /// Most tokens of a sequence; the model's own limit if `None` or larger than that.
    pub context: Option<usize>,
    /// How many requests it takes.
    pub requests: RequestLimits,
    /// What keeps states of sequences between requests.
    pub sessions: SessionOptions,
}

/// How many requests an engine takes; one more is refused.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Most that run at a time, each with caches of its own; at least one.
    pub parallel: usize,
    /// Most that wait besides.
    pub waiting: usize,
    /// Memory for those that run side by side; `None` if it does not matter.
    pub caches: Option<CacheLimit>,
}

/// Memory for the caches of requests that run side by side. One that does not fit waits; alone, any fits.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimit {
    /// What the caches of one take.
    pub size: CacheSize,
    /// Bytes for all.
    pub bytes: u64,
}

impl RequestLimits {
    /// For somebody who asks one thing at a time.
    pub const ONE: Self = Self { parallel: 1, waiting: 1, caches: None };
}

/// An engine with a model in this process.
pub struct LocalEngine {
    info: ModelInfo,
    limits: RequestLimits,
    counters: Arc<Counters>,
    /// Requests that were submitted and have not ended, running ones included.
    open: Arc<AtomicU64>,
    /// Where sessions are kept.
    store: Option<Arc<Store>>,
    in_memory: Published,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl LocalEngine {
    /// Starts the engine's thread.
    pub fn start(loaded: LoadedModel, options: EngineOptions) -> Self {
        let limit = loaded.model.max_context();
        let context = options.context.unwrap_or(limit).min(limit);
        let info = ModelInfo {
            id: options.model_id,
            model_type: loaded.model_type,
            parameters: loaded.parameters,
            weight_bytes: loaded.weight_bytes,
            vocabulary: loaded.model.vocabulary(),
            context,
            loaded_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        let limits = RequestLimits { parallel: options.requests.parallel.max(1), ..options.requests };
        let counters = Arc::new(Counters::default());
        let store = options.sessions.disk.as_ref().map(|disk| Arc::clone(&disk.store));
        let in_memory = Published::default();
        let (sender, orders) = mpsc::channel();
        let runner = ModelRunner::new(loaded.model, loaded.sampler);
        let sessions = Sessions::new(options.sessions, in_memory.clone(), loaded.stream, drawn_seed());
        let engine_loop = EngineLoop::new(orders, runner, counters.clone(), sessions, context, limits);
        let thread = std::thread::spawn(move || engine_loop.run());
        Self {
            info,
            limits,
            counters,
            open: Arc::default(),
            store,
            in_memory,
            orders: Some(sender),
            thread: Some(thread),
        }
    }

    fn order(&self, order: Order) -> Result<(), EngineError> {
        let orders = self.orders.as_ref().ok_or(EngineError::Stopped)?;
        orders.send(order).map_err(|_| EngineError::Stopped)
    }

    fn check(&self, request: &GenerateRequest) -> Result<(), EngineError> {
        let (vocabulary, context) = (self.info.vocabulary, self.info.context);
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let biased = request.sampling.logit_bias.iter().map(|(token, _)| token);
        if let Some(&token) = request.prompt.iter().chain(biased).find(|&&token| token as usize >= vocabulary)
        {
            return Err(EngineError::TokenOutOfRange { token, vocabulary });
        }
        let prompt_tokens = request.prompt.len();
        if prompt_tokens >= context {
            return Err(EngineError::ContextLengthExceeded { prompt_tokens, context });
        }
        Ok(())
    }
}

impl Engine for LocalEngine {
    fn submit(&self, request: GenerateRequest, sink: Box<dyn EventSink>) -> Result<CancelToken, EngineError> {
        self.check(&request)?;
        let open = self.open.load(Ordering::Acquire) as usize;
        let waiting = open.saturating_sub(self.limits.parallel);
        if open >= self.limits.parallel + self.limits.waiting {
            return Err(EngineError::QueueFull { waiting });
        }
        let cancel = CancelToken::new();
        let seed = request.sampling.seed.unwrap_or_else(drawn_seed);
        let sink = CountedSink::new(sink, self.open.clone());
        let sequence = Sequence::new(request, Box::new(sink), cancel.clone(), seed);
        self.order(Order::Answer(Box::new(sequence)))?;
        Ok(cancel)
    }

    fn status(&self) -> EngineStatus {
        self.counters.snapshot()
    }

    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn sessions(&self) -> Vec<SessionSummary> {
        self.in_memory.with_disk(self.store.as_deref())
    }

    fn remove_session(&self, id: &str) -> Result<bool, EngineError> {
        let (sender, answer) = mpsc::channel();
        self.order(Order::Remove(id.to_owned(), sender))?;
        // Without an answer, a thread that was to give it has ended.
        let removed = answer.recv().map_err(|_| EngineError::Stopped)?;
        removed.map_err(|error| EngineError::SessionNotRemoved {
            session: id.to_owned(),
            reason: error.to_string(),
        })
    }
}

impl Drop for LocalEngine {
    /// Lets the open requests finish and waits for the thread.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counts an open request for as long as its sink lives.
struct CountedSink {
    sink: Box<dyn EventSink>,
    open: Arc<AtomicU64>,
}

impl CountedSink {
    fn new(sink: Box<dyn EventSink>, open: Arc<AtomicU64>) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Self { sink, open }
    }
}

impl EventSink for CountedSink {
    fn send(&mut self, event: ds4_engine_api::Event) -> ds4_engine_api::Flow {
        self.sink.send(event)
    }
}

impl Drop for CountedSink {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A seed nobody asked for: the standard library's hasher keys come from the system's random source.
fn drawn_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
