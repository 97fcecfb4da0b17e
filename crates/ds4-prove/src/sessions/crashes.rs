//! Writers that are killed in the middle of their work: the store's own test, with more rounds than a test run has time for.

use std::process::Command;
use std::time::Instant;

use super::Outcome;

const TEST: &str = "killed_writers_lose_nothing_that_was_acknowledged";

pub(super) fn run(rounds: u32) -> Outcome {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let start = Instant::now();
    let output = Command::new(cargo)
        .args([
            "test",
            "--quiet",
            "--package",
            "ds4-session-store",
            "--test",
            "store",
            TEST,
            "--",
            "--nocapture",
        ])
        .env("DS4_CRASH_ROUNDS", rounds.to_string())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    let (printed, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let summary = printed.lines().find(|line| line.contains(" kills, "));
    let seconds = start.elapsed().as_secs();
    match summary {
        Some(summary) if output.status.success() => Ok((
            true,
            format!("{summary}; no acknowledged state lost, none damaged, no orphans left, {seconds} s"),
        )),
        _ => Ok((false, format!("after {seconds} s: {}", complaints.lines().last().unwrap_or("no output")))),
    }
}
