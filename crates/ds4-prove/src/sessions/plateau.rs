//! Memory over many turns: it fills its budget and then stays there.

use std::time::Duration;

use ds4_engine_api::Engine as _;

use super::Outcome;
use super::harness::{Checkpoint, Numbers, plain};

/// For states: far less than the turns would fill.
const BUDGET: u64 = 24 << 20;

/// By how much the second half of the turns may exceed the first.
const GROWTH: f64 = 1.02;

pub(super) fn run(demo: &Checkpoint, turns: usize) -> Outcome {
    let warm = demo.in_memory(BUDGET)?;
    let mut numbers = Numbers::new(500);
    let mut timeline = Vec::new();
    let mut most_states = 0;
    let mut active = Vec::with_capacity(turns);
    for _ in 0..turns {
        if timeline.len() > 500 {
            timeline.clear();
        }
        timeline.extend(numbers.tokens(60, warm.vocabulary()));
        timeline.extend(warm.ask(plain(&timeline, 8))?.tokens);
        // The state of the turn is kept after the client has its last event.
        std::thread::sleep(Duration::from_millis(5));
        most_states = most_states.max(warm.engine.status().snapshot_bytes);
        active.push(warm.device.memory().stats().active);
    }
    let most = |part: &[usize]| part.iter().copied().max().unwrap_or(0);
    let (first, second) = active.split_at(turns / 2);
    let (first, second) = (most(first), most(second));
    let megabytes = |bytes: f64| bytes / f64::from(1 << 20);
    let figure = format!(
        "{turns} turns, states at most {:.1} of {:.0} MiB, the device at most {:.1} MiB in the first half and {:.1} MiB in \
         the second (limit {GROWTH} times)",
        megabytes(most_states as f64),
        megabytes(BUDGET as f64),
        megabytes(first as f64),
        megabytes(second as f64),
    );
    let is_filled = most_states > BUDGET / 2;
    Ok((is_filled && most_states <= BUDGET && second as f64 <= first as f64 * GROWTH, figure))
}
