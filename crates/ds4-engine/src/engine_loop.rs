//! The loop itself: take requests, let the scheduled one work, send what came of it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use ds4_engine_api::{Event, FinishReason};
use tracing::{debug, warn};

use crate::chunk_size::ChunkSize;
use crate::model_runner::ModelRunner;
use crate::schedule::Schedule;
use crate::sequence::{Ending, Outcome, Sequence};
use crate::status::Counters;

/// What the engine's thread works on. Ends when nobody can send requests any more, after the running ones.
pub(crate) struct EngineLoop {
    pub(crate) requests: Receiver<Sequence>,
    pub(crate) runner: ModelRunner,
    pub(crate) counters: Arc<Counters>,
    pub(crate) context: usize,
}

impl EngineLoop {
    pub(crate) fn run(mut self) {
        let mut schedule = Schedule::default();
        let mut chunk = ChunkSize::default();
        while self.take_requests(&mut schedule) {
            for mut gone in schedule.remove_waiting(Sequence::is_cancelled) {
                gone.end(Ok(FinishReason::Cancelled));
                self.count(Ending::Cancelled);
            }
            let Some((sequence, begins)) = schedule.next() else { continue };
            let outcome = match if begins { sequence.begin(&self.runner, self.context) } else { Ok(()) } {
                Ok(()) => sequence.step(&mut self.runner, &mut chunk),
                Err(error) => sequence.end(Err(error)),
            };
            let (prefilled, generated) = sequence.take_progress();
            Counters::add(&self.counters.prefill_tokens, prefilled);
            Counters::add(&self.counters.decode_tokens, generated);
            if prefilled > 0 || begins {
                Counters::set(&self.counters.cache_bytes, sequence.cache_bytes());
            }
            Counters::set(&self.counters.running, 1);
            if let Outcome::Ended(ending) = outcome {
                debug!(?ending, "request ended");
                drop(schedule.end());
                self.count(ending);
                Counters::set(&self.counters.running, 0);
                Counters::set(&self.counters.cache_bytes, 0);
            }
            Counters::set(&self.counters.waiting, schedule.waiting());
        }
    }

    /// Takes what has come; waits without using the CPU if there is nothing else to do. False ends the loop.
    fn take_requests(&self, schedule: &mut Schedule<Sequence>) -> bool {
        if schedule.is_idle() {
            match self.requests.recv() {
                Ok(sequence) => admit(schedule, sequence),
                Err(_) => return false,
            }
        }
        loop {
            match self.requests.try_recv() {
                Ok(sequence) => admit(schedule, sequence),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !schedule.is_idle(),
            }
        }
    }

    fn count(&self, ending: Ending) {
        Counters::add(&self.counters.completed, 1);
        match ending {
            Ending::Complete => {}
            Ending::Cancelled => Counters::add(&self.counters.cancelled, 1),
            Ending::Failed => {
                warn!("a request failed");
                Counters::add(&self.counters.failed, 1);
            }
        }
    }
}

fn admit(schedule: &mut Schedule<Sequence>, mut sequence: Sequence) {
    sequence.send(Event::Queued { ahead: schedule.ahead_of_new() });
    schedule.add(sequence);
}
