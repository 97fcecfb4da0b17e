//! Every Rust file opens with `//!`: what it is for and what it leaves out.

use super::Source;

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let headless = sources.iter().filter(|s| !s.text.trim_start().starts_with("//!") && !is_fuzz_target(s));
    headless.map(|s| format!("{} does not open with a `//!` header", s.name())).collect()
}

/// The fuzzing macro needs `#![no_main]` first; the header may follow it.
fn is_fuzz_target(source: &Source) -> bool {
    source.path.starts_with("fuzz") && source.text.lines().take(5).any(|line| line.starts_with("//!"))
}
