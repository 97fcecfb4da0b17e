//! What a server promises of its sessions: answers equal those of an engine that keeps nothing, turns prefill only what is
//! new, and nothing that happens to the folder of states reaches a client.

mod chat;
mod crashes;
mod damage;
mod delays;
mod harness;
mod plateau;
mod restore;

use ds4_testkit::golden;

use crate::report::Report;
use harness::{Checkpoint, Numbers};

/// Tiny checkpoints with all layer kinds of their family.
const TINY: &[(&str, &str)] = &[("qwen4_exp", "base"), ("deepseek_v4", "base"), ("glm5_next", "base")];

/// The bundled model that is measured.
const DEMO: &str = "qwen4_exp";

pub(crate) fn run(report: &mut Report, short: bool) -> anyhow::Result<()> {
    let demo = Checkpoint::new("demo", golden::demo(DEMO));
    let tiny: Vec<_> = TINY
        .iter()
        .map(|(family, name)| {
            Checkpoint::new(&format!("{family}/{name}"), golden::root().join(family).join(name))
        })
        .collect();
    let turns = if short { 25 } else { 200 };
    item(report, "chat, demo", chat::run(&demo, turns, if short { 600 } else { 1200 }));
    for checkpoint in &tiny {
        item(report, &format!("chat, {}", checkpoint.name), chat::run(checkpoint, turns, 700));
    }
    restore::run(report, &demo, short)?;
    item(report, "decode steps while states are saved", delays::run(&demo, short));
    item(report, "memory", plateau::run(&demo, if short { 60 } else { 500 }));
    damage::run(report, &tiny[0], &tiny[2])?;
    if !short {
        item(report, "writers killed with kill -9", crashes::run(200));
    }
    Ok(())
}

/// Whether a claim held, and the figure.
type Outcome = anyhow::Result<(bool, String)>;

/// A computation that fails is a failed item, and the rest goes on.
fn item(report: &mut Report, name: &str, outcome: Outcome) {
    match outcome {
        Ok((true, figure)) => report.passed(name, &figure),
        Ok((false, figure)) => report.failed(name, &figure),
        Err(error) => report.failed(name, &format!("{error:#}")),
    }
}
