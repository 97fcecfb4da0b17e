//! Whether decoding feels that a state is being written: the longest gaps between tokens with and without it.

use std::time::Duration;

use ds4_engine::{DiskOptions, SessionOptions};
use ds4_session_store::StoreStats;

use super::Outcome;
use super::harness::{
    AMPLE, Checkpoint, Numbers, Subject, fingerprints, median, milliseconds, open_store, plain,
};

/// What a write may add to a decode step.
const LIMIT: Duration = Duration::from_millis(20);

/// Tokens of the answer that is timed.
const DECODED: usize = 60;

pub(super) fn run(demo: &Checkpoint, short: bool) -> Outcome {
    let (rounds, length) = if short { (7, 600) } else { (21, 3000) };
    let folder = tempfile::tempdir()?;
    let store = open_store(folder.path())?;
    let disk = DiskOptions { store: store.clone(), fingerprints: fingerprints("model", "template") };
    let saving = demo.start(SessionOptions { memory_bytes: AMPLE, disk: Some(disk) })?;
    let quiet = demo.in_memory(AMPLE)?;
    let mut delays = Delays::default();
    for round in 0..rounds {
        // Side by side and in turn first, so that what else the machine does hits both.
        let (with, without) = if round % 2 == 0 {
            let without = longest_gap(&quiet, round, length)?;
            (longest_gap(&saving, round, length)?, without)
        } else {
            (longest_gap(&saving, round, length)?, longest_gap(&quiet, round, length)?)
        };
        delays.add(with, without);
    }
    drop(saving);
    let StoreStats { saves, bytes_written, .. } = store.stats();
    let megabytes = bytes_written as f64 / 1e6;
    let figure = format!("{}; {saves} saves, {megabytes:.0} MB", delays.figure());
    Ok((delays.added() <= LIMIT && saves >= rounds, figure))
}

/// The longest gaps of the rounds.
#[derive(Default)]
struct Delays {
    with: Vec<Duration>,
    without: Vec<Duration>,
    /// Of each round, what saving added; nothing if the gap was longer without.
    added: Vec<Duration>,
}

impl Delays {
    fn add(&mut self, with: Duration, without: Duration) {
        self.with.push(with);
        self.without.push(without);
        self.added.push(with.saturating_sub(without));
    }

    /// By the median: on a machine with other work a gap of its own hits one side of a round and not the other.
    fn added(&self) -> Duration {
        median(&self.added)
    }

    fn figure(&self) -> String {
        let most = |times: &[Duration]| milliseconds(times.iter().max().copied().unwrap_or_default());
        format!(
            "saving adds {:.1} ms to the longest gap between tokens (limit {} ms), {:.1} ms with and {:.1} ms without, \
             medians of {} rounds (worst {:.1} and {:.1})",
            milliseconds(self.added()),
            LIMIT.as_millis(),
            milliseconds(median(&self.with)),
            milliseconds(median(&self.without)),
            self.added.len(),
            most(&self.with),
            most(&self.without),
        )
    }
}

/// Ends a long turn, whose state is then saved, and times the answer to a short prompt that comes right after it.
fn longest_gap(subject: &Subject, round: u64, length: usize) -> anyhow::Result<Duration> {
    let mut numbers = Numbers::new(1000 + round);
    let vocabulary = subject.vocabulary();
    subject.ask(plain(&numbers.tokens(length, vocabulary), 2))?;
    let answer = subject.ask(plain(&numbers.tokens(8, vocabulary), DECODED))?;
    Ok(answer.gaps.into_iter().max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(rounds: &[(u64, u64)]) -> Duration {
        let mut delays = Delays::default();
        rounds.iter().for_each(|&(with, without)| {
            delays.add(Duration::from_millis(with), Duration::from_millis(without));
        });
        delays.added()
    }

    #[test]
    fn a_delay_in_most_rounds_counts_and_a_single_one_does_not() {
        assert_eq!(delays(&[(40, 10), (45, 10), (10, 12)]), Duration::from_millis(30));
        assert_eq!(delays(&[(90, 10), (11, 10), (10, 40)]), Duration::from_millis(1));
    }
}
