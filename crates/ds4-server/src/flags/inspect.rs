//! Flags of `inspect`.

use clap::Args;

use super::ModelName;
use super::range::at_least_one;
use crate::{demo, env_vars};

const EXAMPLES: &str = "\
Examples:
  ds4server inspect
  ds4server inspect ~/models/qwen --context 32768
  ds4server inspect ~/models/qwen --json | jq .parameters";

/// Say what a checkpoint is and needs.
///
/// Reads the configuration and the headers of the weight files, not the weights. Exits with 1 if the checkpoint cannot be
/// run, after saying why.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectFlags {
    /// Folder of a Hugging Face checkpoint, or `demo`, `demo:deepseek`, `demo:glm`
    #[arg(value_name = "DIR|demo", default_value = demo::NAME, env = env_vars::MODEL, hide_env = true)]
    pub(crate) model: ModelName,

    /// Tokens to reckon the memory for [default: what the model allows]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) context: Option<usize>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
