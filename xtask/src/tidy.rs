//! `cargo xtask tidy`: the house rules that no compiler checks. Each rule is a file with its data at the top.

mod architecture;
mod crate_graph;
mod file_size;
mod machine_paths;
mod module_header;
mod source;
mod tolerances;
mod twins;
mod unsafe_code;

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::tree;

/// A Rust file of the project.
struct Source {
    /// Relative to the workspace.
    path: PathBuf,
    text: String,
}

impl Source {
    /// The path with forward slashes.
    fn name(&self) -> String {
        self.path.to_string_lossy().replace('\\', "/")
    }
}

pub(crate) fn run() -> anyhow::Result<()> {
    let files = tree::files()?;
    let sources = rust_sources(&files)?;
    let mut problems = Vec::new();
    problems.extend(module_header::check(&sources));
    problems.extend(file_size::check(&sources));
    problems.extend(unsafe_code::check(&sources));
    problems.extend(tolerances::check(&sources));
    problems.extend(twins::check(&sources));
    problems.extend(crate_graph::check()?);
    problems.extend(architecture::check()?);
    problems.extend(machine_paths::check(&files)?);
    for problem in &problems {
        println!("tidy: {problem}");
    }
    if !problems.is_empty() {
        bail!("{} house rules broken", problems.len());
    }
    println!("tidy: {} Rust files in order", sources.len());
    Ok(())
}

fn rust_sources(files: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let rust = files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs"));
    rust.map(|path| {
        let text = std::fs::read_to_string(tree::root().join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Source { path: path.clone(), text })
    })
    .collect()
}
