//! `cargo xtask prove`: what the project claims, measured on an optimised build.
//!
//! The measuring is in `ds4-prove`; this only builds and starts it, so that xtask itself needs none of the crates it
//! examines and keeps working when they do not build.

use crate::tree;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    claim: Claim,
}

#[derive(clap::Subcommand)]
enum Claim {
    /// Logits and decisions against the golden values of every checkpoint.
    Parity {
        /// Leave out the longest cases; what `ci` runs.
        #[arg(long)]
        short: bool,
    },
    /// Sessions: equal answers, what is prefilled, restoring, saving, damaged files.
    Sessions {
        /// Fewer turns, shorter states, no killed writers; what `ci` runs.
        #[arg(long)]
        short: bool,
    },
    /// Speculative decoding: the recordings of MTPLX, distributions, and states between cycles.
    Speculation {
        /// Leave out the slowest cases; what `ci` runs.
        #[arg(long)]
        short: bool,
    },
    /// How much faster speculation makes the demo model; the result goes to benchmarks/.
    SpeculationSpeed {
        /// Runs of each combination, taken in turn.
        #[arg(long, default_value_t = 9)]
        runs: usize,
    },
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match options.claim {
        Claim::Parity { short } => claim("parity", short),
        Claim::Sessions { short } => claim("sessions", short),
        Claim::Speculation { short } => claim("speculation", short),
        Claim::SpeculationSpeed { runs } => {
            let json = tree::root().join("benchmarks/speculation.json");
            let runs = runs.to_string();
            prove(&["speculation-speed", "--runs", &runs, "--json", &json.to_string_lossy()])
        }
    }
}

/// Measures one claim, by its name in `ds4-prove`.
pub(crate) fn claim(name: &str, short: bool) -> anyhow::Result<()> {
    if short { prove(&[name, "--short"]) } else { prove(&[name]) }
}

fn prove(arguments: &[&str]) -> anyhow::Result<()> {
    let mut cargo = tree::cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "ds4-prove", "--"]);
    tree::run(cargo.args(arguments))
}
