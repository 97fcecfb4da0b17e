//! Where the workspace is, which files belong to it, and how commands are run in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The folder with the workspace manifest.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.to_path_buf(), Path::to_path_buf)
}

/// Where builds and Python environments go.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A command that runs in the root folder.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs to the end, output to the terminal; an unsuccessful exit is an error.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// Whether `program` starts and ends well; its output is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Files that are tracked or would be if added, relative to the root, sorted. Ignored files are not among them.
pub(crate) fn files() -> anyhow::Result<Vec<PathBuf>> {
    let output = command("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .output()
        .context("cannot start git, which lists the files of the project")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<PathBuf> = names
        .split('\0')
        .filter(|n| !n.is_empty())
        .map(PathBuf::from)
        .filter(|f| root().join(f).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
