//! How long a long conversation takes to come back: from memory, and from a file.

use std::time::Duration;

use super::harness::{AMPLE, Checkpoint, Numbers, Subject, median, milliseconds, plain};
use super::{Outcome, item};
use crate::report::Report;

const MEMORY_LIMIT: Duration = Duration::from_millis(50);
const DISK_LIMIT: Duration = Duration::from_millis(300);

/// Tokens of the conversation.
const LONG: usize = 32 << 10;
const SHORT: usize = 1500;

/// Tokens that come after it.
const ROOM: usize = 64;

const REPEATS: usize = 5;

pub(super) fn run(report: &mut Report, demo: &Checkpoint, short: bool) -> anyhow::Result<()> {
    let (folder, weights) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let length = if short { SHORT } else { LONG };
    let demo = demo.with_context(weights.path(), length + ROOM)?;
    let warm = demo.on_disk(folder.path(), AMPLE)?;
    let mut timeline = Numbers::new(7).tokens(length, warm.vocabulary());
    timeline.extend(warm.ask(plain(&timeline, 8))?.tokens);
    // A token more, so that the state of the whole conversation is the longest that fits.
    timeline.push(11);
    item(report, &format!("restore of {length} tokens from memory"), measure(&warm, &timeline, MEMORY_LIMIT));
    drop(warm);
    // Without room in memory every request reads the file again.
    let from_disk = demo.on_disk(folder.path(), 0)?;
    item(
        report,
        &format!("restore of {length} tokens from disk"),
        measure(&from_disk, &timeline, DISK_LIMIT),
    );
    Ok(())
}

fn measure(warm: &Subject, timeline: &[u32], limit: Duration) -> Outcome {
    let (mut first, mut steps) = (Vec::new(), Vec::new());
    let mut restored = usize::MAX;
    for _ in 0..REPEATS {
        let answer = warm.ask(plain(timeline, 4))?;
        restored = restored.min(answer.cached);
        first.push(answer.first_token);
        steps.extend(answer.gaps);
    }
    let (first, step) = (median(&first), median(&steps));
    let figure = format!(
        "{restored} of {} tokens; first token after {:.1} ms, a decode step takes {:.1} ms of it, median of {REPEATS} \
         (limit {} ms)",
        timeline.len(),
        milliseconds(first),
        milliseconds(step),
        limit.as_millis(),
    );
    Ok((restored + 3 >= timeline.len() && first.saturating_sub(step) <= limit, figure))
}
