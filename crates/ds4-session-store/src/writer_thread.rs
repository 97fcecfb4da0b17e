//! Saving beside the decode path: a thread with a short queue that never makes its caller wait.
//!
//! A state that waits is replaced by a newer one of the same kind and session that has grown out of it; if the queue is full, the oldest that waits is
//! dropped. A dropped save costs a prefill after a restart and nothing else. Every state ends in one [`SaveOutcome`].
//!
//! Sessions are removed here too, so that none comes back through a save that was on its way.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{
    Fingerprints, PartRef, Removed, SaveReport, SessionRecord, SnapshotKind, StateToSave, Store, StoreError,
};

/// How much less the thread presses for the processor than the one that decodes (Linux only: elsewhere the priority is
/// the whole process's).
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Something whose parts can be shown when it is time to write them, such as a clone of caches.
pub trait StateParts: Send {
    /// The parts. Called on the writer thread.
    fn parts(&self) -> Vec<PartRef<'_>>;
}

/// A state that is to be saved.
pub struct PendingState {
    /// The session it belongs to.
    pub session: Option<SessionRecord>,
    /// What it marks.
    pub kind: SnapshotKind,
    /// What it depends on.
    pub fingerprints: Fingerprints,
    /// Tokens it stands for.
    pub tokens: Arc<[u32]>,
    /// Its parts.
    pub parts: Box<dyn StateParts>,
}

impl PendingState {
    /// Whether a save of `newer` makes this one superfluous. States without a session only make room for themselves.
    fn is_superseded_by(&self, newer: &Self) -> bool {
        match (&self.session, &newer.session) {
            (Some(own), Some(other)) => {
                // Not a branch of the conversation that its client may come back to.
                let is_grown = newer.tokens.starts_with(&self.tokens);
                own.id == other.id && self.kind == newer.kind && is_grown
            }
            (None, None) => self.tokens == newer.tokens && self.fingerprints == newer.fingerprints,
            _ => false,
        }
    }
}

/// What became of a state.
#[derive(Debug)]
pub enum SaveOutcome {
    /// It is on the disk.
    Saved(SaveReport),
    /// It is not, for this reason.
    Failed(StoreError),
    /// A newer state of its kind and session took its place.
    Superseded,
    /// The queue was full, or the time for the shutdown was up.
    Dropped,
    /// Its session was removed first.
    Removed,
}

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It waits.
    Queued,
    /// It waits in the place of an older state of its kind and session.
    Replaced,
    /// It waits in the place of the oldest state that waited.
    Displaced,
    /// The thread is shutting down.
    Refused,
}

/// Limits of the queue.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// States that may wait, at least 1. Each keeps its memory as long, besides what is kept for later requests: on a slow disk
    /// as much as the caches of so many requests, where these do not share it.
    pub waiting: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { waiting: 16 }
    }
}

/// Called with the session's id and the outcome, on the thread that caused it.
type Done = Box<dyn Fn(Option<&str>, SaveOutcome) + Send + Sync>;

/// Called once with what was removed.
type WhenRemoved = Box<dyn FnOnce(Result<Removed, StoreError>) + Send>;

/// A session that is to be removed.
struct Removal {
    session: String,
    done: WhenRemoved,
}

/// What the thread does next.
enum Work {
    Save(PendingState),
    Remove(Removal),
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    done: Done,
}

#[derive(Default)]
struct State {
    queue: VecDeque<PendingState>,
    /// Done before anything that waits in the queue.
    removals: VecDeque<Removal>,
    writing: bool,
    closing: bool,
}

/// The thread. Dropping it drops what waits and waits for the save that is running.
pub struct WriterThread {
    shared: Arc<Shared>,
    options: WriterOptions,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    /// Starts the thread. `done` must be quick and must not call back.
    pub fn start(
        store: Arc<Store>,
        options: WriterOptions,
        done: impl Fn(Option<&str>, SaveOutcome) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let shared =
            Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), done: Box::new(done) });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("checkpoints".into()).spawn(move || own.run(&store))?;
        Ok(Self { shared, options, thread: Some(thread) })
    }

    /// Queues a state. Never waits for the disk.
    pub fn submit(&self, state: PendingState) -> Submitted {
        let mut guard = self.shared.lock();
        if guard.closing {
            drop(guard);
            self.shared.report(&state, SaveOutcome::Dropped);
            return Submitted::Refused;
        }
        let older = guard.queue.iter().position(|waiting| waiting.is_superseded_by(&state));
        let (displaced, submitted) = match older.and_then(|at| guard.queue.remove(at)) {
            Some(older) => (Some((older, SaveOutcome::Superseded)), Submitted::Replaced),
            None if guard.queue.len() >= self.options.waiting.max(1) => {
                (guard.queue.pop_front().map(|oldest| (oldest, SaveOutcome::Dropped)), Submitted::Displaced)
            }
            None => (None, Submitted::Queued),
        };
        guard.queue.push_back(state);
        drop(guard);
        self.shared.changed.notify_all();
        if let Some((state, outcome)) = displaced {
            self.shared.report(&state, outcome);
        }
        submitted
    }

    /// Removes a session from the store: never waits for the disk. What waits of it is dropped, and a save of it that is
    /// running comes first. `done` is called on the thread, or dropped if the thread is.
    pub fn remove_session(
        &self,
        session: &str,
        done: impl FnOnce(Result<Removed, StoreError>) + Send + 'static,
    ) {
        let mut guard = self.shared.lock();
        let is_of = |state: &PendingState| state.session.as_ref().is_some_and(|own| own.id == session);
        let (dropped, kept) = std::mem::take(&mut guard.queue).into_iter().partition(is_of);
        guard.queue = kept;
        guard.removals.push_back(Removal { session: session.to_owned(), done: Box::new(done) });
        drop(guard);
        self.shared.changed.notify_all();
        let dropped: VecDeque<PendingState> = dropped;
        dropped.iter().for_each(|state| self.shared.report(state, SaveOutcome::Removed));
    }

    /// Waits until nothing waits any more, but not longer than `deadline`. Says whether everything is on the disk.
    pub fn flush(&self, deadline: Duration) -> bool {
        let until = Instant::now() + deadline;
        let mut guard = self.shared.lock();
        while guard.is_busy() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            guard = self.shared.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Takes no more states, writes what waits until the deadline, drops the rest. A save that is running at the deadline is
    /// left to itself: a process that ends in the middle of it leaves nothing half-written. Says whether everything is
    /// on the disk.
    pub fn shutdown(mut self, deadline: Duration) -> bool {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        let finished = self.flush(deadline);
        self.shared.drop_waiting();
        let thread = self.thread.take();
        if finished && let Some(thread) = thread {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
        finished
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.drop_waiting();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl State {
    fn is_busy(&self) -> bool {
        self.writing || !self.queue.is_empty() || !self.removals.is_empty()
    }

    fn next(&mut self) -> Option<Work> {
        let removal = self.removals.pop_front().map(Work::Remove);
        removal.or_else(|| self.queue.pop_front().map(Work::Save))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, state: &PendingState, outcome: SaveOutcome) {
        (self.done)(state.session.as_ref().map(|session| session.id.as_str()), outcome);
    }

    fn drop_waiting(&self) {
        let waiting = {
            let mut guard = self.lock();
            guard.removals.clear();
            std::mem::take(&mut guard.queue)
        };
        self.changed.notify_all();
        waiting.iter().for_each(|state| self.report(state, SaveOutcome::Dropped));
    }

    fn run(&self, store: &Store) {
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "checkpoints are written at normal priority");
        }
        while let Some(work) = self.next() {
            match work {
                Work::Save(state) => self.save(store, state),
                Work::Remove(Removal { session, done }) => done(store.remove_session(&session)),
            }
            self.lock().writing = false;
            self.changed.notify_all();
        }
    }

    /// Gives the memory of the state back before anybody is told that nothing is left to do.
    fn save(&self, store: &Store, state: PendingState) {
        let saved = store.save(&StateToSave {
            session: state.session.as_ref(),
            fingerprints: &state.fingerprints,
            tokens: &state.tokens,
            parts: &state.parts.parts(),
        });
        self.report(&state, saved.map_or_else(SaveOutcome::Failed, SaveOutcome::Saved));
    }

    /// What to do next, `None` at the end.
    fn next(&self) -> Option<Work> {
        let mut guard = self.lock();
        loop {
            if let Some(work) = guard.next() {
                guard.writing = true;
                return Some(work);
            }
            if guard.closing {
                return None;
            }
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
