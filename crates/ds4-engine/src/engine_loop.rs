//! The loop itself: take requests, run passes for those that are scheduled, end those that are complete.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use ds4_engine_api::{EngineError, Event, FinishReason};
use ds4_session_store::StoreError;
use tracing::{debug, error, warn};

use crate::chunk_size::ChunkSize;
use crate::local_engine::{CacheLimit, RequestLimits};
use crate::model_runner::ModelRunner;
use crate::pace::Experience;
use crate::panics::caught;
use crate::round;
use crate::schedule::{Schedule, Verdict};
use crate::sequence::Sequence;
use crate::sessions::Sessions;
use crate::status::Counters;
use crate::turns::Turns;

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
    pub(crate) limits: RequestLimits,
    pub(crate) chunk: ChunkSize,
    pub(crate) turns: Turns,
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
        let mut schedule = Schedule::new(self.limits.parallel);
        while self.take_orders(&mut schedule) {
            for gone in schedule.remove(|sequence| sequence.is_cancelled()) {
                self.note_load(&schedule);
                self.note_caches(&schedule);
                self.end(gone, Ok(FinishReason::Cancelled));
            }
            self.begin_waiting(&mut schedule);
            self.note_load(&schedule);
            self.run_pass(&mut schedule);
        }
    }

    /// Whether a request may begin. One whose prompt begins like one that is being read waits until that is known, rather than
    /// to compute the same.
    fn judge(&self, sequence: &Sequence, running: &[Sequence]) -> Verdict {
        let soon = running.iter().map(|other| other.will_know(sequence)).max().unwrap_or(0);
        if soon > 0 && self.sessions.known(sequence.prompt()) < soon {
            return Verdict::LetOthersPass;
        }
        match self.limits.caches {
            Some(CacheLimit { size, bytes }) if !running.is_empty() => {
                let needed = |sequence: &Sequence| sequence.needed_cache_bytes(size, self.context);
                let all = running.iter().map(needed).fold(needed(sequence), u64::saturating_add);
                if all > bytes { Verdict::Wait } else { Verdict::Begin }
            }
            _ => Verdict::Begin,
        }
    }

    /// Lets waiting requests begin as far as there are places.
    fn begin_waiting(&mut self, schedule: &mut Schedule<Sequence>) {
        while let Some(mut sequence) =
            schedule.next_to_begin(|sequence, running| self.judge(sequence, running))
        {
            let (runner, sessions) = (&self.runner, &mut self.sessions);
            let begin = || sequence.begin(runner, sessions, self.context, &self.experience);
            let begun = caught(begin).and_then(|begun| begun);
            self.counters.note(&sequence.take_progress());
            match begun {
                Ok(()) => schedule.run(sequence),
                Err(error) => self.end(sequence, Err(error)),
            }
            self.note_caches(schedule);
        }
    }

    /// Runs a pass for the requests that run: for a window of each answer, and for a piece of one prompt if it is time for that.
    fn run_pass(&mut self, schedule: &mut Schedule<Sequence>) {
        let is_answered = schedule.running().iter().any(|sequence| !sequence.is_reading());
        let first = schedule.running().iter().position(Sequence::is_reading);
        let reader = first.filter(|_| !is_answered || self.turns.may_read());
        let most = if is_answered { self.chunk.beside_answers() } else { self.chunk.tokens() };
        let last = reader.map(|index| schedule.put_last(index));
        let takes_part =
            |(index, sequence): &(usize, &mut Sequence)| !sequence.is_reading() || last == Some(*index);
        let members = schedule.running_mut().iter_mut().enumerate().filter(takes_part);
        let (indices, mut members): (Vec<_>, Vec<_>) = members.unzip();
        if members.is_empty() {
            return;
        }
        let (outcomes, seconds) = round::run(&mut members, most, &self.runner, &mut self.sessions);

        let mut read = 0;
        for member in members {
            let progress = member.take_progress();
            read += progress.prefilled;
            self.counters.note(&progress);
        }
        self.turns.note(last.is_some(), is_answered, seconds);
        if read > 0 {
            self.chunk.observe(read, Duration::from_secs_f64(seconds));
        }
        let outcomes = indices.into_iter().zip(outcomes);
        let ended: Vec<_> = outcomes.filter_map(|(index, outcome)| Some((index, outcome?))).collect();
        if read > 0 || !ended.is_empty() {
            // From behind: the places before it stay the same.
            let ended = ended.into_iter().rev().map(|(index, result)| (schedule.end(index), result));
            let ended: Vec<_> = ended.collect();
            self.note_load(schedule);
            self.note_caches(schedule);
            ended.into_iter().rev().for_each(|(sequence, result)| self.end(sequence, result));
        }
    }

    /// Lets everybody know how much there is to do.
    fn note_load(&self, schedule: &Schedule<Sequence>) {
        Counters::set(&self.counters.waiting, schedule.waiting());
        Counters::set(&self.counters.running, schedule.running().len());
    }

    /// Lets everybody know what caches take. Not after every token: it takes a walk through all of them.
    fn note_caches(&self, schedule: &Schedule<Sequence>) {
        let bytes = schedule.running().iter().map(Sequence::cache_bytes).sum();
        Counters::set(&self.counters.cache_bytes, bytes);
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
            self.experience = std::mem::take(&mut self.experience).or_more(experience);
        }
        self.note_states();
    }

    /// Lets everybody know what is in memory.
    fn note_states(&mut self) {
        self.counters.note_states(self.sessions.held());
        self.sessions.publish();
    }
}
