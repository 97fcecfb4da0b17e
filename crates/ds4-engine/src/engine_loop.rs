//! The loop itself: take requests, run passes for those that are scheduled, end those that are complete.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use ds4_engine_api::{EngineError, Event, FinishReason};
use ds4_session_store::StoreError;
use tracing::{debug, error, warn};

use crate::chunk_size::{self, ChunkSize};
use crate::local_engine::{CacheLimit, RequestLimits};
use crate::model_runner::ModelRunner;
use crate::pace::Experience;
use crate::panics::caught;
use crate::round::{self, Member};
use crate::schedule::{Schedule, Verdict};
use crate::sequence::Sequence;
use crate::sessions::Sessions;
use crate::status::Counters;
use crate::time_share::{self, Left, TimeShare};

/// How old the counters of caches may be while requests run.
const NOTES: Duration = Duration::from_millis(500);

/// What the engine's thread is asked for.
pub(crate) enum Order {
    /// To answer a request.
    Answer(Box<Sequence>),
    /// To forget a session, and to say whether anything was kept of it.
    Remove(String, Sender<Result<bool, StoreError>>),
}

/// What the engine's thread works on. Ends when nobody can send requests any more, after the running ones.
pub(crate) struct EngineLoop {
    orders: Receiver<Order>,
    runner: ModelRunner,
    counters: Arc<Counters>,
    sessions: Sessions,
    context: usize,
    limits: RequestLimits,
    chunk_alone: ChunkSize,
    chunk_beside_others: ChunkSize,
    time: TimeShare,
    /// When the counters of caches were set.
    noted: Instant,
    /// Whether anything has happened that may let a waiting request begin.
    changed: bool,
    /// What answers have shown of drafts.
    experience: Experience,
}

impl EngineLoop {
    /// A loop without requests. `context` is the most tokens of a sequence.
    pub(crate) fn new(
        orders: Receiver<Order>,
        runner: ModelRunner,
        counters: Arc<Counters>,
        sessions: Sessions,
        context: usize,
        limits: RequestLimits,
    ) -> Self {
        Self {
            orders,
            runner,
            counters,
            sessions,
            context,
            limits,
            chunk_alone: ChunkSize::default(),
            chunk_beside_others: ChunkSize::default(),
            time: TimeShare::default(),
            noted: Instant::now(),
            changed: false,
            experience: Experience::default(),
        }
    }

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
            let gone = schedule.remove(|sequence| sequence.is_cancelled());
            let gone = gone.into_iter().map(|sequence| {
                let reason = sequence.end_reason();
                (sequence, Ok(reason))
            });
            self.end(gone, &schedule);
            if std::mem::take(&mut self.changed) {
                self.begin_waiting(&mut schedule);
            }
            self.run_pass(&mut schedule);
            if self.noted.elapsed() > NOTES {
                self.note_load(&schedule);
            }
        }
    }

    /// Whether a request may begin. One whose prompt begins like one that is being read waits until that is known, rather than
    /// to compute the same.
    fn judge(&self, sequence: &Sequence, running: &[Box<Sequence>]) -> Verdict {
        let soon = running.iter().map(|other| other.will_know(sequence, &self.sessions)).max().unwrap_or(0);
        let is_hopeless = || running.iter().any(|other| other.could_not_keep(sequence));
        if soon > 0 && !is_hopeless() && self.sessions.known(sequence.prompt()) < soon {
            return Verdict::LetOthersPass;
        }
        match self.limits.caches {
            Some(CacheLimit { size, bytes }) if !running.is_empty() => {
                let needed = |sequence: &Sequence| sequence.needed_cache_bytes(size, self.context);
                let all =
                    running.iter().map(|other| needed(other)).fold(needed(sequence), u64::saturating_add);
                if all > bytes { Verdict::Wait } else { Verdict::Begin }
            }
            _ => Verdict::Begin,
        }
    }

    /// Lets waiting requests begin as far as there are places. A state that comes from disk is loaded here, and answers wait
    /// for it.
    fn begin_waiting(&mut self, schedule: &mut Schedule<Box<Sequence>>) {
        while let Some(mut sequence) =
            schedule.next_to_begin(|sequence, running| self.judge(sequence, running))
        {
            let (runner, sessions) = (&self.runner, &mut self.sessions);
            let begin = || sequence.begin(runner, sessions, self.context, &self.experience);
            let begun = caught(begin).and_then(|begun| begun);
            self.counters.note(&sequence.take_progress());
            match begun {
                Ok(()) => schedule.run(sequence),
                Err(error) => self.end([(sequence, Err(error))].into_iter(), schedule),
            }
        }
        self.note_load(schedule);
    }

    /// Runs a pass for the requests that run: for a window of each answer, and for pieces of prompts if it is time for that.
    fn run_pass(&mut self, schedule: &mut Schedule<Box<Sequence>>) {
        let running = schedule.running_mut();
        let left: Vec<Left> = running.iter().map(|sequence| sequence.left_to_read()).collect();
        let answers = left.iter().any(|left| left.all == 0);
        let reads = left.iter().any(|left| left.all > 0) && (!answers || self.time.may_read());
        let (chunk, may_take) = match running.len() {
            1 => (&mut self.chunk_alone, chunk_size::ALONE),
            _ => (&mut self.chunk_beside_others, self.time.patience()),
        };
        let shares = time_share::divide(if reads { chunk.tokens() } else { 0 }, &left);

        let takes_part = |index: &usize| left[*index].all == 0 || shares[*index] > 0;
        let indices: Vec<usize> = (0..left.len()).filter(takes_part).collect();
        let members = running.iter_mut().enumerate().filter(|(index, _)| takes_part(index));
        let mut members: Vec<Member<'_>> =
            members.map(|(index, sequence)| Member { sequence, most: shares[index] }).collect();
        if members.is_empty() {
            return;
        }
        let round = round::run(&mut members, &self.runner, &mut self.sessions);

        let mut read = 0;
        for Member { sequence, .. } in members {
            let progress = sequence.take_progress();
            read += progress.prefilled;
            self.changed |= progress.reached_boundary;
            self.counters.note(&progress);
        }
        if read > 0 {
            chunk.observe(read, Duration::from_secs_f64(round.pass), may_take);
        }
        self.time.note(reads, answers, round.whole);
        let ended = indices.into_iter().zip(round.outcomes).rev();
        // From behind: the places before it stay the same.
        let ended = ended.filter_map(|(index, outcome)| outcome.map(|result| (schedule.end(index), result)));
        let mut ended: Vec<_> = ended.collect();
        ended.reverse();
        self.end(ended.into_iter(), schedule);
    }

    /// Lets everybody know how much there is to do. What caches take is looked at now and then only: it takes a walk through
    /// all of them.
    fn note_load(&mut self, schedule: &Schedule<Box<Sequence>>) {
        self.noted = Instant::now();
        let running = schedule.running();
        Counters::set(&self.counters.waiting, schedule.waiting());
        Counters::set(&self.counters.running, running.len());
        let storages = running.iter().flat_map(|sequence| sequence.storages());
        // Requests of one beginning share what they have of it.
        let bytes = storages.collect::<HashMap<usize, u64>>().into_values().sum::<u64>();
        Counters::set(&self.counters.cache_bytes, bytes as usize);
    }

    /// Takes what has come; waits without using the CPU if there is nothing else to do. False ends the loop.
    fn take_orders(&mut self, schedule: &mut Schedule<Box<Sequence>>) -> bool {
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

    fn take(&mut self, order: Order, schedule: &mut Schedule<Box<Sequence>>) {
        match order {
            Order::Answer(mut sequence) => {
                // Counted before it is told.
                Counters::set(&self.counters.waiting, schedule.waiting() + 1);
                sequence.send(Event::Queued { ahead: schedule.ahead_of_new() });
                schedule.add(sequence);
                self.changed = true;
            }
            Order::Remove(session, answer) => {
                self.sessions.remove(&session, answer);
                self.changed = true;
                self.note_states();
            }
        }
    }

    /// Ends requests that run no more: tells their clients first, and then keeps what they leave.
    fn end(
        &mut self,
        ended: impl Iterator<Item = (Box<Sequence>, Result<FinishReason, EngineError>)>,
        schedule: &Schedule<Box<Sequence>>,
    ) {
        let mut told = Vec::new();
        for (mut sequence, result) in ended {
            if told.is_empty() {
                self.note_load(schedule);
            }
            let is_sound = result.is_ok();
            self.tell(&mut sequence, result);
            told.push((sequence, is_sound));
        }
        for (mut sequence, is_sound) in told {
            if is_sound && let Err(error) = caught(|| sequence.keep(&self.runner, &mut self.sessions)) {
                warn!(%error, "the state of an answer is not kept");
            }
            if let Some(experience) = sequence.leave(&mut self.sessions) {
                self.experience = std::mem::take(&mut self.experience).or_more(experience);
            }
            self.changed = true;
            self.note_states();
        }
    }

    /// Counts, then tells: who reads the status after the last event sees the request in it.
    fn tell(&mut self, sequence: &mut Sequence, result: Result<FinishReason, EngineError>) {
        Counters::add(&self.counters.completed, 1);
        match &result {
            Ok(FinishReason::Cancelled) => Counters::add(&self.counters.cancelled, 1),
            Ok(reason) => debug!(?reason, "request ended"),
            Err(error) => {
                warn!(%error, "request failed");
                Counters::add(&self.counters.failed, 1);
            }
        }
        // A client that has its answer may ask for its session at once: the states of the prompt are known by then.
        self.note_states();
        sequence.end(result);
    }

    /// Lets everybody know what is in memory.
    fn note_states(&mut self) {
        self.counters.note_states(self.sessions.held());
        self.sessions.publish();
    }
}
