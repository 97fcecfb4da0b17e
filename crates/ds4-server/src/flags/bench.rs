//! Flags of `bench`.

use clap::{Args, ValueEnum};

use super::ModelFlags;
use super::range::at_least_one;

const EXAMPLES: &str = "\
Examples:
  ds4server bench
  ds4server bench --model ~/models/qwen --prompt 2048 --gen 64 --repeat 5 --json
  ds4server bench --parallel 8 --prompt 64
  ds4server bench --random qwen4_exp:mid --json
  ds4server bench --random qwen4_exp:mid --parts decode,prefill --repeat 1
  ds4server bench --random qwen4_exp:mid --profile";

/// Measure prefill and decode speed.
///
/// Runs prompts of arbitrary tokens through the engine, as requests do, once to warm up and then --repeat times, and
/// prints medians. Beside them stand the bytes of weights that a token needs and the speed at which this machine reads
/// memory, which together bound the speed of decoding.
///
/// With --random or --parts, and without --prompt, --gen and --parallel, the passes of a model are measured one kind at a
/// time, without the engine: prompts, decoding after short and long contexts, speculative checks, several sequences at once.
/// Each stands beside the bytes and operations that it needs and the limits that the same run measured.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchFlags {
    /// Tokens of the prompt [default: 512]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) prompt: Option<usize>,

    /// Tokens to generate [default: 128]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) r#gen: Option<u32>,

    /// Requests at a time, as many clients send them [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) parallel: Option<usize>,

    /// Measured runs [default: 3, with --random or --parts 5]
    #[arg(long, value_name = "R", value_parser = at_least_one)]
    pub(crate) repeat: Option<usize>,

    /// Measure a random 4-bit model made in memory: qwen4_exp:mid, deepseek_v4:mid or glm5_next:mid
    #[arg(long, value_name = "FAMILY:SIZE")]
    pub(crate) random: Option<String>,

    /// Where the values of a random model come from
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random")]
    pub(crate) seed: u64,

    /// Kinds of passes to measure [default with --random: all]
    #[arg(long, value_enum, value_name = "PART,..", value_delimiter = ',', conflicts_with_all = ["prompt", "gen", "parallel"])]
    pub(crate) parts: Vec<BenchPart>,

    /// Show where the time of decoding and prefill goes, by primitive
    #[arg(long, conflicts_with_all = ["parts", "prompt", "gen", "parallel", "repeat"])]
    pub(crate) profile: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep a core busy until standard input ends: the neighbour that --parts loaded starts
    #[arg(long, hide = true)]
    pub(crate) spin: bool,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}

impl BenchFlags {
    /// Whether requests are to run through the engine.
    pub(crate) fn asks_the_engine(&self) -> bool {
        let asks = self.prompt.is_some() || self.r#gen.is_some() || self.parallel.is_some();
        asks || (self.random.is_none() && self.parts.is_empty() && !self.profile)
    }
}

/// A kind of pass, or of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchPart {
    /// Prompts of 32, 512 and 2048 tokens
    Prefill,
    /// One token at a time after 64, 2048 and 16384
    Decode,
    /// Speculative checks of 2, 4 and 8 tokens
    Verify,
    /// 1, 2, 4 and 8 sequences at once
    Batch,
    /// The most memory held
    Memory,
    /// Decoding while another program wants a core
    Loaded,
}
