//! `cargo xtask bench`: measures the random models of middle size on an optimised build and files the results by machine
//! and commit in `benchmarks/results/`.
//!
//! The measuring is `ds4server bench`; nothing else should run on the machine meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::tree;

/// Columns of the history, as named in the results.
const COLUMNS: &[&str] = &[
    "model",
    "decode_tps",
    "prefill_tps",
    "decode_16k_ratio",
    "verify4_ratio",
    "batch8_ratio",
    "peak_memory_ratio",
    "loaded_ratio",
    "bandwidth_gbps",
    "fma_gflops",
    "decode_bandwidth_fraction",
    "prefill_fma_fraction",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which models.
    #[arg(default_values_t = ["qwen4_exp:mid", "deepseek_v4:mid", "glm5_next:mid"].map(str::to_owned))]
    models: Vec<String>,
    /// Rounds of all measures.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Folder of the machine in `benchmarks/results/`; without it, the processor's name.
    #[arg(long)]
    machine: Option<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    tree::run(tree::cargo().args(["build", "--release", "--package", "ds4-server"]))?;
    let commit = commit()?;
    for model in &options.models {
        eprintln!("measuring {model}");
        let json = measure(model, options.repeat)?;
        let result: Value =
            serde_json::from_str(&json).context("the output of `ds4server bench` is no JSON")?;
        let machine = options.machine.clone().unwrap_or_else(|| machine(&result));
        let folder = tree::root().join("benchmarks/results").join(machine);
        let file = folder.join(&commit).join(format!("{}.json", model.replace(':', "-")));
        fs::create_dir_all(file.parent().unwrap_or(&folder))?;
        fs::write(&file, json)?;
        remember(&folder.join("history.csv"), &commit, &result)?;
        println!("{}", file.display());
    }
    Ok(())
}

fn measure(model: &str, repeat: usize) -> anyhow::Result<String> {
    let mut cargo = tree::cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "ds4-server", "--"]);
    cargo.args(["bench", "--random", model, "--json", "--repeat", &repeat.to_string()]);
    let output = cargo.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The commit that is measured, marked if files differ from it.
fn commit() -> anyhow::Result<String> {
    let git = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git").current_dir(tree::root()).args(arguments).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(if changed { format!("{head}-changed") } else { head })
}

/// A name for a folder: the processor and the number of threads.
fn machine(result: &Value) -> String {
    let processor = result["processor"].as_str().unwrap_or("unknown");
    let words = processor.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_lowercase();
    format!("{name}-{}-threads", result["threads"])
}

/// Adds a line to the machine's history.
fn remember(file: &Path, commit: &str, result: &Value) -> anyhow::Result<()> {
    let mut history = fs::read_to_string(file).unwrap_or_default();
    if history.is_empty() {
        history = format!("commit,{}\n", COLUMNS.join(","));
    }
    let values = COLUMNS.iter().map(|column| match &result[*column] {
        Value::String(text) => text.clone(),
        Value::Number(number) => format!("{:.4}", number.as_f64().unwrap_or_default()),
        _ => String::new(),
    });
    history.push_str(&format!("{commit},{}\n", values.collect::<Vec<_>>().join(",")));
    fs::write(file, history).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_is_named_by_processor_and_threads() {
        let result = json!({"processor": "AMD EPYC 9B14 (Genoa)", "threads": 2});
        assert_eq!(machine(&result), "amd-epyc-9b14-genoa-2-threads");
    }
}
