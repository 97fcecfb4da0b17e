//! Flags of `bench`.

use clap::Args;

use super::ModelFlags;
use super::range::at_least_one;

const EXAMPLES: &str = "\
Examples:
  ds4server bench
  ds4server bench --model ~/models/qwen --prompt 2048 --gen 64 --repeat 5 --json";

/// Measure prefill and decode speed.
///
/// Runs prompts of arbitrary tokens through the engine, as requests do, once to warm up and then --repeat times, and
/// prints medians. Beside them stand the bytes of weights that a token needs and the speed at which this machine reads
/// memory, which together bound the speed of decoding.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchFlags {
    /// Tokens of the prompt
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 512)]
    pub(crate) prompt: usize,

    /// Tokens to generate
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(2..), default_value_t = 128)]
    pub(crate) r#gen: u32,

    /// Measured runs
    #[arg(long, value_name = "R", value_parser = at_least_one, default_value_t = 3)]
    pub(crate) repeat: usize,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}
