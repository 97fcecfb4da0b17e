//! Measures what the project claims and prints a line per item with its figure; the last line is `N passed, M failed`.
//!
//! Started by `cargo xtask prove`. It is a crate of its own because it links the models, which xtask must not need, and is
//! no test, because its figures are meant to be read. Nothing here is part of the server.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]

mod decisions;
mod parity;
mod report;
mod samples;
mod sessions;
mod speculation;
mod speculation_head;
mod speculation_speed;
mod speculation_states;
mod subject;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Measures what the project claims")]
enum Command {
    /// Logits and decisions against the golden values of every checkpoint.
    Parity {
        /// Leave out the longest cases.
        #[arg(long)]
        short: bool,
    },
    /// Sessions: reuse, restore, saving, damage.
    Sessions {
        /// Fewer turns, shorter states.
        #[arg(long)]
        short: bool,
    },
    /// Speculative decoding: the recordings of MTPLX, distributions, and states between cycles.
    Speculation {
        /// Leave out the slowest cases.
        #[arg(long)]
        short: bool,
    },
    /// How much faster speculation makes the demo model.
    SpeculationSpeed(speculation_speed::Options),
}

fn main() -> ExitCode {
    let mut report = report::Report::default();
    let (claim, result) = match Command::parse() {
        Command::Parity { short } => ("parity", parity::run(&mut report, short)),
        Command::Sessions { short } => ("sessions", sessions::run(&mut report, short)),
        Command::Speculation { short } => ("speculation", speculation::run(&mut report, short)),
        Command::SpeculationSpeed(options) => {
            ("speculation speed", speculation_speed::run(&mut report, &options))
        }
    };
    if let Err(error) = result {
        report.failed(claim, &format!("could not go on: {error:#}"));
    }
    report.finish()
}
