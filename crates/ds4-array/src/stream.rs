//! Streams run evaluations one after the other; events tell when one is done.
//!
//! [`eval`] runs on the calling thread when the stream is idle, so that a decode step pays for no thread change.
//! [`async_eval`] hands the work to the stream's own thread and returns.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::evaluate::{self, Tape};
use crate::{Array, ArrayError, Device};

/// An ordered queue of work on a device. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    device: Device,
    queue: Mutex<Queue>,
    /// Signalled when the queue or the running state changes.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Tape>,
    /// A tape is running, on the stream's thread or on a caller's.
    running: bool,
    has_thread: bool,
}

impl Stream {
    /// A new, idle stream.
    pub fn new(device: &Device) -> Self {
        Self(Arc::new(Inner { device: device.clone(), queue: Mutex::default(), changed: Condvar::new() }))
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits until all work given to the stream so far is done.
    pub fn synchronize(&self) {
        let mut queue = self.0.queue();
        while queue.running || !queue.jobs.is_empty() {
            queue = self.0.wait(queue);
        }
    }

    /// Runs the tape here if the stream is idle, else behind the work that waits.
    fn run(&self, tape: Tape) -> Result<(), ArrayError> {
        let done = tape.done().clone();
        {
            let mut queue = self.0.queue();
            if queue.running || !queue.jobs.is_empty() {
                drop(queue);
                self.submit(tape);
                return done.wait();
            }
            queue.running = true;
        }
        let _running = Running(&self.0);
        tape.run(self.device());
        done.wait()
    }

    fn submit(&self, tape: Tape) {
        let mut queue = self.0.queue();
        queue.jobs.push_back(tape);
        if !queue.has_thread {
            queue.has_thread = true;
            let inner = Arc::downgrade(&self.0);
            std::thread::spawn(move || serve(&inner));
        }
        drop(queue);
        self.0.changed.notify_all();
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream on {:?}", self.0.device)
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the stream idle again.
struct Running<'a>(&'a Inner);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.queue().running = false;
        self.0.changed.notify_all();
    }
}

/// The stream's thread: takes jobs while there are any and ends when the queue is empty, so that it needs no message
/// to stop. The next submission starts another.
fn serve(stream: &Weak<Inner>) {
    while let Some(inner) = stream.upgrade() {
        let tape = {
            let mut queue = inner.queue();
            while queue.running {
                queue = inner.wait(queue);
            }
            let Some(tape) = queue.jobs.pop_front() else {
                queue.has_thread = false;
                return;
            };
            queue.running = true;
            tape
        };
        let _running = Running(&inner);
        tape.run(&inner.device);
    }
}

/// Completion of one evaluation. Clones are the same event.
#[derive(Clone, Default)]
pub struct Event(Arc<(Mutex<Option<Result<(), ArrayError>>>, Condvar)>);

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Event {
    pub(crate) fn set(&self, result: Result<(), ArrayError>) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.0.1.notify_all();
    }

    /// Whether the evaluation has ended.
    pub fn is_done(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for the end of the evaluation and tells how it went.
    pub fn wait(&self) -> Result<(), ArrayError> {
        let mut result = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => result = self.0.1.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Computes the arrays and all they need, and waits for it.
pub fn eval(arrays: &[&Array]) -> Result<(), ArrayError> {
    for (stream, tape) in evaluate::plan(arrays) {
        stream.run(tape)?;
    }
    // Arrays that another evaluation took charge of may still be on their way.
    arrays.iter().try_for_each(|array| wait_for(array))
}

/// Starts to compute the arrays and all they need. The event of the last stream involved is returned; arrays that
/// are used before it is done are waited for.
pub fn async_eval(arrays: &[&Array]) -> Event {
    let mut last = Event::default();
    last.set(Ok(()));
    for (stream, tape) in evaluate::plan(arrays) {
        last = tape.done().clone();
        stream.submit(tape);
    }
    last
}

/// Waits until an array that some evaluation took charge of is there.
pub(crate) fn wait_for(array: &Array) -> Result<(), ArrayError> {
    if array.is_evaluated() {
        return Ok(());
    }
    array.0.scheduled().get().ok_or(ArrayError::NotComputed)?.wait()?;
    if array.is_evaluated() { Ok(()) } else { Err(ArrayError::NotComputed) }
}
