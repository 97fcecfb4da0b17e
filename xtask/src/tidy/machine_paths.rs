//! No file names a folder of somebody's machine.

use std::path::PathBuf;

use anyhow::Context;

use crate::tree;

/// Beginnings of absolute paths that exist on one machine only. Written apart so that this file does not find itself.
const BEGINNINGS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/op", "t/v/"),
    concat!("/tm", "p/h"),
];

/// Data that users or trainers wrote, where such text is content.
const CONTENT: &[&str] = &["demo/", "golden/mtplx_receipts/"];

pub(super) fn check(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| !CONTENT.iter().any(|folder| f.starts_with(folder))) {
        let bytes = std::fs::read(tree::root().join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        for (at, line) in text.lines().enumerate() {
            if let Some(found) = BEGINNINGS.iter().find(|beginning| begins_path(line, beginning)) {
                problems.push(format!("{}:{}: a path of one machine ({found}...)", file.display(), at + 1));
            }
        }
    }
    Ok(problems)
}

/// Whether `beginning` occurs where an absolute path can start, and not inside a URL or a longer path.
fn begins_path(line: &str, beginning: &str) -> bool {
    line.match_indices(beginning).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "/._-}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_relative_paths_are_no_machine_paths() {
        let home = BEGINNINGS[0];
        assert!(begins_path(&format!("see {home}someone/x"), home));
        assert!(begins_path(&format!("\"{home}someone\""), home));
        assert!(!begins_path(&format!("https://host{home}x"), home));
        assert!(!begins_path(&format!("docs{home}x"), home));
    }
}
