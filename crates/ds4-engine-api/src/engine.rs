//! The engine as its users see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;

use crate::{EngineError, EngineStatus, Event, FinishReason, GenerateRequest, ModelInfo, SessionSummary};

/// Turns token prompts into token answers. Work happens on the engine's own thread: only removing a session waits, for that
/// thread and for the disk.
pub trait Engine: Send + Sync {
    /// Queues a request. Its events go to `sink`, from the engine's thread, until `Finished` or `Failed`.
    ///
    /// Errors that can be seen at once (an empty prompt, a token outside of the vocabulary, a prompt longer than
    /// the context, a full queue, a stopped engine) are returned, and `sink` is dropped without an event.
    fn submit(&self, request: GenerateRequest, sink: Box<dyn EventSink>) -> Result<CancelToken, EngineError>;

    /// What runs now and what was done so far. Cheap, and never waits for the model.
    fn status(&self) -> EngineStatus;

    /// What is loaded; fixed for the engine's life.
    fn model(&self) -> &ModelInfo;

    /// Sessions that are kept, in memory and on disk, the last used first. Never waits for the model.
    fn sessions(&self) -> Vec<SessionSummary>;

    /// Forgets a session, in memory and on disk; a request of it that runs goes on and leaves nothing behind. False if
    /// nothing was kept under this name.
    ///
    /// # Errors
    /// The disk refuses, or the engine has stopped.
    fn remove_session(&self, id: &str) -> Result<bool, EngineError>;
}

/// Where the events of one request go. Implementations must not block: they run on the engine's thread.
pub trait EventSink: Send {
    /// Takes one event. [`Flow::Stop`] means that nobody listens any more and cancels the request.
    fn send(&mut self, event: Event) -> Flow;
}

/// Whether the receiver wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Nobody listens: end the request at the next step.
    Stop,
}

impl<F: FnMut(Event) -> Flow + Send> EventSink for F {
    fn send(&mut self, event: Event) -> Flow {
        self(event)
    }
}

/// The other end of the channel reads the events; a request whose receiver is gone is cancelled.
impl EventSink for Sender<Event> {
    fn send(&mut self, event: Event) -> Flow {
        if Self::send(self, event).is_ok() { Flow::Continue } else { Flow::Stop }
    }
}

/// Ends one request early. Clones cancel the same request.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicU8>);

/// What a token says.
const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const CANCELLED: u8 = 2;

impl CancelToken {
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the engine to end the request at its next step or prefill chunk. It still reports `Finished`.
    pub fn cancel(&self) {
        self.end(CANCELLED);
    }

    /// Asks for the same because the answer has all that was wanted, such as a stop string.
    pub fn finish(&self) {
        self.end(FINISHED);
    }

    /// What was asked for first stays.
    fn end(&self, how: u8) {
        let _ = self.0.compare_exchange(RUNNING, how, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the request is to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire) != RUNNING
    }

    /// How a request ends that was asked to.
    pub fn reason(&self) -> FinishReason {
        if self.0.load(Ordering::Acquire) == FINISHED { FinishReason::Stop } else { FinishReason::Cancelled }
    }
}
