//! Flags of `quantize`.

use std::path::PathBuf;

use clap::Args;

use super::ModelName;
use crate::{demo, env_vars};

const EXAMPLES: &str = "\
Examples:
  ds4server quantize --model ~/models/qwen --out ~/models/qwen-4bit
  ds4server quantize --model demo --out demo-8bit --bits 8";

/// Make a smaller checkpoint with 4 or 8 bits a weight.
///
/// The result is in the affine layout of MLX. Weights that would lose too much, such as routers, norms and convolutions,
/// stay as they are.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuantizeFlags {
    /// Folder of the checkpoint to read, or `demo`
    #[arg(long, value_name = "DIR|demo", default_value = demo::NAME, env = env_vars::MODEL, hide_env = true)]
    pub(crate) model: ModelName,

    /// Folder to write, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Bits of a weight
    #[arg(long, value_name = "4|8", value_parser = bits, default_value = "4")]
    pub(crate) bits: u32,

    /// Weights that share a scale: fewer are more exact and take more space
    #[arg(long, value_name = "32|64", value_parser = group, default_value = "64")]
    pub(crate) group: usize,

    /// Write nothing to standard error but errors: no progress, no report
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn bits(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|bits| matches!(bits, 4 | 8)).ok_or("expected 4 or 8")
}

fn group(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|group| matches!(group, 32 | 64)).ok_or("expected 32 or 64")
}
