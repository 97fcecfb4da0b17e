//! One pass of the model for all requests that take part in it.
//!
//! What goes wrong while a request is prepared, or while it takes up what the pass has shown, ends that request. What goes
//! wrong in the pass ends all that took part: nobody's caches can be trusted then.

use std::time::Instant;

use ds4_engine_api::EngineError;

use crate::model_runner::{ModelRunner, Pass};
use crate::panics::caught;
use crate::sequence::{Outcome, Sequence};
use crate::sessions::Sessions;

/// Who takes part in a pass.
pub(crate) struct Member<'a> {
    pub(crate) sequence: &'a mut Sequence,
    /// Most tokens of its prompt that it may read.
    pub(crate) most: usize,
}

/// What a round came to.
pub(crate) struct Round {
    /// For each member.
    pub(crate) outcomes: Vec<Outcome>,
    /// Seconds of the pass, and with all that was done for it.
    pub(crate) pass: f64,
    pub(crate) whole: f64,
}

/// Prepares, runs and settles a pass.
pub(crate) fn run(members: &mut [Member<'_>], runner: &ModelRunner, sessions: &mut Sessions) -> Round {
    let started = Instant::now();
    let others = members.len().saturating_sub(1);
    let prepare = |member: &mut Member<'_>| own_work(|| member.sequence.prepare(runner, member.most, others));
    let mut outcomes: Vec<Outcome> = members.iter_mut().map(prepare).collect();
    let open = members.iter_mut().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none());
    let mut open: Vec<(&mut Sequence, &mut Outcome)> =
        open.map(|(member, outcome)| (&mut *member.sequence, outcome)).collect();

    let pass_started = Instant::now();
    let streams = caught(|| {
        let mut segments: Vec<_> = open.iter_mut().filter_map(|(sequence, _)| sequence.segment()).collect();
        if segments.is_empty() { Ok(Vec::new()) } else { runner.run(&mut segments) }
    });
    let pass = Pass { seconds: pass_started.elapsed().as_secs_f64(), is_alone: others == 0 };
    match streams.and_then(|result| result) {
        Ok(streams) => {
            for ((sequence, outcome), streams) in open.iter_mut().zip(&streams) {
                **outcome = own_work(|| sequence.settle(sessions, &pass, streams.as_ref()));
            }
        }
        Err(error) => open.iter_mut().for_each(|(_, outcome)| **outcome = Some(Err(error.clone()))),
    }
    Round { outcomes, pass: pass.seconds, whole: started.elapsed().as_secs_f64() }
}

fn own_work(work: impl FnOnce() -> Outcome) -> Outcome {
    caught(work).unwrap_or_else(|error: EngineError| Some(Err(error)))
}
