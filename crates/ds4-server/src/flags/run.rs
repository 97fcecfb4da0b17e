//! Flags of the two commands that answer in the terminal.

use std::path::PathBuf;

use clap::Args;

use super::{ModelFlags, SamplingFlags, SessionFlags};

const RUN_EXAMPLES: &str = "\
Examples:
  ds4server run \"Tell me a short story about a lighthouse.\"
  ds4server run --temperature 0 --think off ping
  ds4server run @question.txt > answer.txt
  git diff | ds4server run --system \"Summarise this change.\" --model ~/models/qwen";

/// Answer one prompt.
///
/// Only the answer goes to standard output, piece by piece. What the model thinks before it answers, and the speed at
/// the end, go to standard error.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunFlags {
    /// The prompt, or @FILE to read it from a file, or - for standard input, which is also used when it is no terminal
    pub(crate) prompt: Option<String>,

    /// Instructions that come before the prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// Give the prompt to the model as it is, without the chat template; special tokens in it count
    #[arg(long, conflicts_with_all = ["system", "think", "show_thinking"])]
    pub(crate) raw: bool,

    /// Write what the model thinks to standard output too, between <think> and </think>
    #[arg(long)]
    pub(crate) show_thinking: bool,

    /// Write nothing to standard error but errors: no thinking, no speed
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}

const CHAT_EXAMPLES: &str = "\
Ctrl-C stops an answer, Ctrl-D ends the program, /help lists the commands. A line that ends with \\ goes on.

Examples:
  ds4server chat
  ds4server chat --system \"You answer in one sentence.\" --think off
  printf 'ping\\n/save talk.json\\n' | ds4server chat --quiet";

/// Talk to a model.
#[derive(Args, Debug)]
#[command(after_help = CHAT_EXAMPLES)]
pub(crate) struct ChatFlags {
    /// Instructions that come before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// Go on with a conversation that /save wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,

    /// Go on with an earlier conversation: the last one, or the one of this name (`ds4server sessions list`)
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["load", "system"])]
    pub(crate) resume: Option<String>,

    /// Do not keep what is typed for the next time
    #[arg(long)]
    pub(crate) no_history: bool,

    /// Write what the model thinks to standard output, not to standard error
    #[arg(long)]
    pub(crate) show_thinking: bool,

    /// Write nothing to standard error but errors: no greeting, no thinking, no speed
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,

    #[command(flatten)]
    pub(crate) sessions: SessionFlags,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}
