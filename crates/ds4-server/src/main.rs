//! The binary `ds4server`: wires the crates together and talks to people. Everything it knows about models, text and
//! HTTP is in the other crates.

mod answer;
mod commands;
mod cores;
mod demo;
mod env_vars;
mod exit_code;
mod flags;
mod hint;
mod interrupt;
mod log;
mod machine;
mod model_loader;
mod output;
mod printer;
mod progress;
mod saved_chats;
mod session_store;
mod tokenizer_fit;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let result = flags::Cli::try_parse().map_err(anyhow::Error::new).and_then(commands::run);
    exit_code::report(result)
}
