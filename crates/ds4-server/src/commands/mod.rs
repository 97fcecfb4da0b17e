//! The commands, a file each: from settings to what the user sees.

mod bench;
mod chat;
mod completions;
mod inspect;
mod logits;
mod quantize;
mod run;
mod serve;
mod sessions;
mod sizes;

use crate::flags::{Cli, Command};

/// Runs the command that was typed.
pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Run(flags) => run::run(flags),
        Command::Chat(flags) => chat::run(flags),
        Command::Serve(flags) => serve::run(flags),
        Command::Inspect(flags) => inspect::run(&flags),
        Command::Logits(flags) => logits::run(flags),
        Command::Quantize(flags) => quantize::run(&flags),
        Command::Bench(flags) => bench::run(flags),
        Command::Sessions(flags) => sessions::run(&flags),
        Command::Completions(flags) => completions::run(flags.shell),
    }
}
