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
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match options.claim {
        Claim::Parity { short } => claim("parity", short),
        Claim::Sessions { short } => claim("sessions", short),
    }
}

/// Measures one claim, by its name in `ds4-prove`.
pub(crate) fn claim(name: &str, short: bool) -> anyhow::Result<()> {
    let mut cargo = tree::cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "ds4-prove", "--", name]);
    if short {
        cargo.arg("--short");
    }
    tree::run(&mut cargo)
}
