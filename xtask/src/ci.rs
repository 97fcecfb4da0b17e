//! `cargo xtask ci`: everything that must pass before a change is taken, in order, cheapest first.
//!
//! It stops at the first failure. The last line is `N passed, M failed`.

use std::time::Instant;

use crate::{golden, openai_client, prove, tidy, tree};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only the steps whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

type Step = (&'static str, fn() -> anyhow::Result<()>);

const STEPS: &[Step] = &[
    ("format", format),
    ("tidy", tidy::run),
    ("golden check", golden::check),
    ("clippy", clippy),
    ("documentation", documentation),
    ("tests", tests),
    ("doctests", doctests),
    ("fuzz targets compile", fuzz_targets),
    ("prove parity", || prove::claim("parity", true)),
    ("prove sessions", || prove::claim("sessions", true)),
    ("prove speculation", || prove::claim("speculation", true)),
    ("openai client", openai_client::run_if_possible),
];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let wanted = |name: &str| options.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let start = Instant::now();
    let mut passed = 0;
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        println!("\n== {name}");
        let began = Instant::now();
        if let Err(error) = step() {
            println!("== {name}: FAILED after {:.0} s: {error:#}", began.elapsed().as_secs_f32());
            println!("{passed} passed, 1 failed");
            std::process::exit(1);
        }
        println!("== {name}: ok, {:.0} s", began.elapsed().as_secs_f32());
        passed += 1;
    }
    println!("\nall steps in {:.0} s", start.elapsed().as_secs_f32());
    println!("{passed} passed, 0 failed");
    Ok(())
}

fn format() -> anyhow::Result<()> {
    tree::run(tree::cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> anyhow::Result<()> {
    let mut cargo = tree::cargo();
    cargo.args(["clippy", "--quiet", "--workspace", "--all-targets", "--"]);
    // The second: no function over clippy's default of 100 lines.
    tree::run(cargo.args(["-D", "warnings", "-D", "clippy::too_many_lines"]))
}

fn documentation() -> anyhow::Result<()> {
    let mut cargo = tree::cargo();
    tree::run(cargo.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn tests() -> anyhow::Result<()> {
    if tree::succeeds(tree::cargo().args(["nextest", "--version"])) {
        return tree::run(tree::cargo().args(["nextest", "run", "--workspace", "--status-level", "fail"]));
    }
    println!("cargo-nextest is not installed: using cargo test");
    tree::run(tree::cargo().args(["test", "--quiet", "--workspace", "--lib", "--bins", "--tests"]))
}

fn doctests() -> anyhow::Result<()> {
    tree::run(tree::cargo().args(["test", "--quiet", "--workspace", "--doc"]))
}

fn fuzz_targets() -> anyhow::Result<()> {
    let manifest = tree::root().join("fuzz/Cargo.toml");
    if !manifest.is_file() {
        println!("no fuzz targets yet");
        return Ok(());
    }
    tree::run(tree::cargo().args(["check", "--quiet", "--manifest-path"]).arg(manifest))
}
