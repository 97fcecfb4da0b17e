//! The command line as typed, a file a group of flags. Each group also says what it means: as settings in which every
//! default has been resolved.

mod bench;
mod inspect;
mod logits;
mod model;
mod quantize;
mod range;
mod run;
mod sampling;
mod serve;
mod sessions;
mod size;

use clap::{Args, Parser, Subcommand};

use crate::env_vars;

pub(crate) use bench::{BenchFlags, BenchPart};
pub(crate) use inspect::InspectFlags;
pub(crate) use logits::LogitsFlags;
pub(crate) use model::{ModelFlags, ModelName, ModelSettings};
pub(crate) use quantize::QuantizeFlags;
pub(crate) use run::{ChatFlags, RunFlags};
pub(crate) use sampling::{AnswerSettings, SamplingFlags};
pub(crate) use serve::ServeFlags;
pub(crate) use sessions::{SessionFlags, SessionSettings, SessionsAction, SessionsFlags};

/// Runs hybrid mixture-of-experts models on this machine: in the terminal, and as a server for OpenAI's API.
///
/// Without --model, everything uses a small demo model that comes with the program.
#[derive(Debug, Parser)]
#[command(name = "ds4server", version, after_help = env_vars::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do. What the help says of a command is the comment of its flags.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunFlags),
    Chat(ChatFlags),
    Serve(ServeFlags),
    Inspect(InspectFlags),
    Logits(LogitsFlags),
    Quantize(QuantizeFlags),
    Bench(BenchFlags),
    Sessions(SessionsFlags),
    Completions(CompletionsFlags),
}

/// Print a completion script for a shell.
#[derive(Args, Debug)]
pub(crate) struct CompletionsFlags {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}
