//! One pass of the model for all requests that take part in it. What goes wrong in one request's own work ends that request;
//! what goes wrong in the pass ends all that took part.

use std::time::Instant;

use ds4_engine_api::EngineError;

use crate::model_runner::{ModelRunner, Pass};
use crate::panics::caught;
use crate::sequence::{Outcome, Sequence};
use crate::sessions::Sessions;

/// Prepares, runs and settles a pass, in which at most `most` tokens of a prompt are read. Returns what it came to for each.
pub(crate) fn run(
    members: &mut [&mut Sequence],
    most: usize,
    runner: &ModelRunner,
    sessions: &mut Sessions,
) -> (Vec<Outcome>, f64) {
    let started = Instant::now();
    let others = members.len() - 1;
    let prepare = |member: &mut &mut Sequence| own_work(|| member.prepare(runner, most, others));
    let mut outcomes: Vec<Outcome> = members.iter_mut().map(prepare).collect();
    let open = members.iter_mut().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none());
    let (mut open, mut outcomes_of_open): (Vec<_>, Vec<_>) = open.unzip();

    let mut segments: Vec<_> = open.iter_mut().filter_map(|member| member.segment()).collect();
    if segments.is_empty() {
        return (outcomes, started.elapsed().as_secs_f64());
    }
    let pass_started = Instant::now();
    let streams = caught(|| runner.run(&mut segments)).and_then(|result| result);
    drop(segments);
    let pass = Pass { seconds: pass_started.elapsed().as_secs_f64(), is_alone: others == 0 };
    match streams {
        Ok(streams) => {
            for ((member, outcome), streams) in open.iter_mut().zip(&mut outcomes_of_open).zip(&streams) {
                **outcome = own_work(|| member.settle(sessions, &pass, streams.as_ref()));
            }
        }
        Err(error) => outcomes_of_open.iter_mut().for_each(|outcome| **outcome = Some(Err(error.clone()))),
    }
    (outcomes, started.elapsed().as_secs_f64())
}

fn own_work(work: impl FnOnce() -> Outcome) -> Outcome {
    caught(work).unwrap_or_else(|error: EngineError| Some(Err(error)))
}
