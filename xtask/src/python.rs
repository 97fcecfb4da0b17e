//! Python environments for the few things that need Python, made on demand below the target folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::tree;

/// The interpreter of an environment called `name` that has the packages of `requirements` (workspace-relative).
///
/// The environment is made once and kept until the requirements change.
pub(crate) fn environment(name: &str, requirements: &Path) -> anyhow::Result<PathBuf> {
    let folder = tree::target().join("python").join(name);
    let interpreter = folder.join("bin/python");
    let wanted = std::fs::read_to_string(tree::root().join(requirements))
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let stamp = folder.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(interpreter);
    }
    if !available() {
        bail!("no `python3` with the venv module was found; install Python 3.11 or later");
    }
    eprintln!("making a Python environment for {name} from {}", requirements.display());
    tree::run(tree::command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = tree::command(&interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(requirements);
    tree::run(&mut pip)?;
    std::fs::write(&stamp, wanted).context("cannot note what was installed")?;
    Ok(interpreter)
}

/// Whether there is a Python that can make environments.
pub(crate) fn available() -> bool {
    tree::succeeds(tree::command("python3").args(["-c", "import venv, ensurepip"]))
}
