//! The project's automation: `cargo xtask <command>`. One file per command; `ci` runs them all in order.
//!
//! Nothing here is part of the server.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]

mod bench;
mod ci;
mod golden;
mod openai_client;
mod prove;
mod python;
mod tidy;
mod tree;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "The project's automation")]
enum Command {
    /// Everything that must pass before a change is taken.
    Ci(ci::Options),
    /// The house rules that no compiler checks.
    Tidy,
    /// The reference vectors in golden/: checksums, or values made anew.
    Golden(golden::Options),
    /// What the project claims, measured: a line per item with its figure.
    Prove(prove::Options),
    /// Speed and memory of the random models, filed in benchmarks/results/.
    Bench(bench::Options),
    /// The official OpenAI Python client against a running demo server.
    OpenaiClient,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Ci(options) => ci::run(&options),
        Command::Tidy => tidy::run(),
        Command::Golden(options) => golden::run(&options),
        Command::Prove(options) => prove::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::OpenaiClient => openai_client::run(),
    };
    // Not returned from `main`, which would print a backtrace when one is asked for: these failures are findings.
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
