//! Flags of `logits`.

use std::path::PathBuf;

use clap::Args;

use super::ModelFlags;
use super::range::at_least_one;

const EXAMPLES: &str = "\
Examples:
  ds4server logits --tokens 1,2,3 --out logits.safetensors
  ds4server logits --model ~/models/qwen --tokens @ids.txt --chunk 1 --out logits.safetensors";

/// Write the logits of given tokens to a file.
///
/// The file holds `logits` [T, V] in float32: row t is what the model expects after the tokens 0 to t. It serves to compare
/// implementations.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogitsFlags {
    /// Token ids with commas or blanks between them, or @FILE with such a list
    #[arg(long, value_name = "IDS|@FILE")]
    pub(crate) tokens: String,

    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// Tokens of one pass; 1 is token by token
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 512)]
    pub(crate) chunk: usize,

    /// Compute with the plain loops that the fast kernels are checked against
    #[arg(long)]
    pub(crate) reference: bool,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}
