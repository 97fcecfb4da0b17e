//! `cargo xtask golden`: the reference vectors in `golden/` and where they come from.
//!
//! `--check` needs no Python: every folder has a `MANIFEST.json` that lists its files with checksums, and nothing else may
//! lie in it. `--regenerate` runs the scripts into a scratch folder and compares.

mod compare;
mod manifest;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::{python, tree};
use manifest::Manifest;

/// The folder below `golden/` that holds programs and no vectors.
const SCRIPTS: &str = "scripts";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Verify checksums and that no file is unlisted (the default).
    #[arg(long)]
    check: bool,
    /// Make the vectors anew with the reference implementation and compare.
    #[arg(long, conflicts_with = "check")]
    regenerate: bool,
    /// The Python to regenerate with; by default an environment made from golden/scripts/requirements.txt.
    #[arg(long, requires = "regenerate")]
    python: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.regenerate { regenerate(options.python.as_deref()) } else { check() }
}

/// Every vector file is there, unchanged, and listed.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut problems = Vec::new();
    let mut files = 0;
    for folder in folders()? {
        match Manifest::load(&folder) {
            Ok(manifest) => {
                files += manifest.files.len();
                problems.extend(manifest.check(&folder, &tree::root())?);
            }
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    if problems.is_empty() {
        println!("golden: {files} files as recorded");
        return Ok(());
    }
    for problem in &problems {
        println!("golden: {problem}");
    }
    bail!("{} problems in golden/", problems.len())
}

fn regenerate(interpreter: Option<&Path>) -> anyhow::Result<()> {
    let interpreter = match interpreter {
        Some(given) => {
            std::path::absolute(given).context("the path of the Python cannot be made absolute")?
        }
        None => python::environment("golden", Path::new("golden/scripts/requirements.txt"))?,
    };
    let scratch = tree::target().join("golden");
    let mut differences = 0;
    for folder in folders()? {
        let manifest = Manifest::load(&folder)?;
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(script) = manifest.regenerating_script(&tree::root()) else {
            println!("{name}: recorded elsewhere ({}), not made anew", manifest.script);
            continue;
        };
        let out = scratch.join(&name);
        if out.exists() {
            std::fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
        }
        println!("{name}: running {}", manifest.script);
        tree::run(tree::command(&interpreter).env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(&out))?;
        for file in manifest.files.keys() {
            let found = compare::files(&folder.join(file), &out.join(file))?;
            println!("{name}/{file}: {found}");
            differences += usize::from(!found.is_same());
        }
    }
    if differences > 0 {
        bail!("{differences} files differ from what the scripts make now");
    }
    println!("golden: everything that can be made anew came out the same");
    Ok(())
}

fn folders() -> anyhow::Result<Vec<PathBuf>> {
    let golden = tree::root().join("golden");
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(&golden).context("cannot list golden/")? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != SCRIPTS) {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}
