//! ARCHITECTURE.md is the map: it names every crate and stays short enough to be read.

use anyhow::Context;

use crate::tree;

const MAP: &str = "ARCHITECTURE.md";
const MOST_LINES: usize = 400;

pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let Ok(text) = std::fs::read_to_string(tree::root().join(MAP)) else {
        return Ok(vec![format!("{MAP} is missing")]);
    };
    let mut problems = Vec::new();
    for entry in std::fs::read_dir(tree::root().join("crates")).context("cannot list crates/")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !text.contains(&name) {
            problems.push(format!("{MAP} does not name the crate {name}"));
        }
    }
    let lines = text.lines().count();
    if lines > MOST_LINES {
        problems.push(format!("{MAP} has {lines} lines, at most {MOST_LINES} are allowed"));
    }
    problems.sort();
    Ok(problems)
}
