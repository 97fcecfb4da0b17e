//! Measures what the project claims and prints a line per item with its figure; the last line is `N passed, M failed`.
//!
//! Started by `cargo xtask prove`. It is a crate of its own because it links the models, which xtask must not need, and is
//! no test, because its figures are meant to be read. Nothing here is part of the server.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]

mod decisions;
mod parity;
mod report;
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
}

fn main() -> ExitCode {
    let Command::Parity { short } = Command::parse();
    let mut report = report::Report::default();
    if let Err(error) = parity::run(&mut report, short) {
        report.failed("parity", &format!("could not go on: {error:#}"));
    }
    report.finish()
}
