//! The loop itself: take requests, let the scheduled one work, send what came of it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use ds4_engine_api::{EngineError, Event, FinishReason};
use ds4_session_store::StoreError;
use tracing::{debug, error, warn};

use crate::chunk_size::ChunkSize;
use crate::model_runner::ModelRunner;
use crate::pace::Experience;
use crate::panics::caught;
use crate::schedule::Schedule;
use crate::sequence::Sequence;
use crate::sessions::Sessions;
use crate::status::Counters;

/// What the engine's thread is asked for.
pub(crate) enum Order {
    /// To answer a request.
    Answer(Box<Sequence>),
    /// To forget a session, and to say whether anything was kept of it.
    Remove(String, Sender<Result<bool, StoreError>>),
}

/// What the engine's thread works on. Ends when nobody can send requests any more, after the running ones.
pub(crate) struct EngineLoop {
    pub(crate) orders: Receiver<Order>,
    pub(crate) runner: ModelRunner,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sessions: Sessions,
    pub(crate) context: usize,
    /// What answers have shown of drafts.
    pub(crate) experience: Experience,
}

impl EngineLoop {
    /// Runs to the end. A panic outside of a request's work ends it too, and the status says so from then on.
    pub(crate) fn run(mut self) {
        if let Err(error) = caught(|| self.run_requests()) {
            error!(%error, "the engine has stopped");
            self.counters.stop(error.to_string());
        }
    }

    fn run_requests(&mut self) {
        let mut schedule = Schedule::default();
        let mut chunk = ChunkSize::default();
        while self.take_orders(&mut schedule) {
            for gone in schedule.remove_waiting(Sequence::is_cancelled) {
                self.end(gone, Ok(FinishReason::Cancelled));
            }
            let Some((sequence, begins)) = schedule.next() else { continue };
            let work = || {
                let (runner, sessions) = (&self.runner, &mut self.sessions);
                if begins && let Err(error) = sequence.begin(runner, sessions, self.context, &self.experience)
                {
                    return Some(Err(error));
                }
                sequence.step(runner, sessions, &mut chunk)
            };
            let outcome = caught(work).unwrap_or_else(|error| Some(Err(error)));
            let progress = sequence.take_progress();
            self.counters.note(&progress);
            if progress.prefilled > 0 || begins {
                Counters::set(&self.counters.cache_bytes, sequence.cache_bytes());
            }
            Counters::set(&self.counters.waiting, schedule.waiting());
            Counters::set(&self.counters.running, usize::from(outcome.is_none()));
            if let Some(result) = outcome
                && let Some(sequence) = schedule.end()
            {
                Counters::set(&self.counters.cache_bytes, 0);
                self.end(sequence, result);
            }
        }
    }

    /// Takes what has come; waits without using the CPU if there is nothing else to do. False ends the loop.
    fn take_orders(&mut self, schedule: &mut Schedule<Sequence>) -> bool {
        if schedule.is_idle() {
            match self.orders.recv() {
                Ok(order) => self.take(order, schedule),
                Err(_) => return false,
            }
        }
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.take(order, schedule),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !schedule.is_idle(),
            }
        }
    }

    fn take(&mut self, order: Order, schedule: &mut Schedule<Sequence>) {
        match order {
            Order::Answer(mut sequence) => {
                sequence.send(Event::Queued { ahead: schedule.ahead_of_new() });
                schedule.add(*sequence);
            }
            Order::Remove(session, answer) => {
                self.sessions.remove(&session, answer);
                self.note_states();
            }
        }
    }

    /// Counts, then tells: who reads the status after the last event sees the request in it.
    fn end(&mut self, mut sequence: Sequence, result: Result<FinishReason, EngineError>) {
        Counters::add(&self.counters.completed, 1);
        match &result {
            Ok(FinishReason::Cancelled) => Counters::add(&self.counters.cancelled, 1),
            Ok(reason) => debug!(?reason, "request ended"),
            Err(error) => {
                warn!(%error, "request failed");
                Counters::add(&self.counters.failed, 1);
            }
        }
        let is_sound = result.is_ok();
        // A client that has its answer may ask for its session at once: the states of the prompt are known by then.
        self.note_states();
        sequence.end(result);
        // After the last event: nobody waits for it.
        if is_sound && let Err(error) = caught(|| sequence.keep(&self.runner, &mut self.sessions)) {
            warn!(%error, "the state of an answer is not kept");
        }
        if let Some(experience) = sequence.leave(&mut self.sessions) {
            self.experience = experience;
        }
        self.note_states();
    }

    /// Lets everybody know what is in memory.
    fn note_states(&mut self) {
        self.counters.note_states(self.sessions.held());
        self.sessions.publish();
    }
}
