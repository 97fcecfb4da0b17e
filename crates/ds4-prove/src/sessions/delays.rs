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
    let (rounds, length) = if short { (5, 600) } else { (12, 3000) };
    let folder = tempfile::tempdir()?;
    let store = open_store(folder.path())?;
    let disk = DiskOptions { store: store.clone(), fingerprints: fingerprints("model", "template") };
    let saving = demo.start(SessionOptions { memory_bytes: AMPLE, disk: Some(disk) })?;
    let quiet = demo.in_memory(AMPLE)?;
    // Side by side, so that what else the machine does hits both.
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        without.push(longest_gap(&quiet, round, length)?);
        with.push(longest_gap(&saving, round, length)?);
    }
    drop(saving);
    let StoreStats { saves, bytes_written, .. } = store.stats();
    let most = |times: &[Duration]| milliseconds(times.iter().max().copied().unwrap_or_default());
    let added = median(&with).saturating_sub(median(&without));
    // On a machine with other work a gap of its own may hit one side and not the other: that much is allowed on top.
    let allowed = LIMIT + median(&without);
    let figure = format!(
        "saving adds {:.1} ms to the longest gap between tokens, {:.1} ms with and {:.1} ms without, medians of {rounds} \
         rounds (worst {:.1} and {:.1}); {saves} saves, {:.0} MB (limit {} ms, and as much again as the gap without, since \
         the machine may be shared)",
        milliseconds(added),
        milliseconds(median(&with)),
        milliseconds(median(&without)),
        most(&with),
        most(&without),
        bytes_written as f64 / 1e6,
        LIMIT.as_millis(),
    );
    Ok((added <= allowed && saves >= rounds, figure))
}

/// Ends a long turn, whose state is then saved, and times the answer to a short prompt that comes right after it.
fn longest_gap(subject: &Subject, round: u64, length: usize) -> anyhow::Result<Duration> {
    let mut numbers = Numbers::new(1000 + round);
    let vocabulary = subject.vocabulary();
    subject.ask(plain(&numbers.tokens(length, vocabulary), 2))?;
    let answer = subject.ask(plain(&numbers.tokens(8, vocabulary), DECODED))?;
    Ok(answer.gaps.into_iter().max().unwrap_or_default())
}
