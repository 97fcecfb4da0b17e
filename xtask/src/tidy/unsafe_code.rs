//! `unsafe` stays in the places that exist for it. The compiler denies it by default; this holds the list of exceptions.

use super::{Source, source};

/// Path prefixes where `unsafe` may appear.
const ALLOWED: &[(&str, &str)] = &[
    (
        "crates/ds4-cpu-kernels/",
        "vector intrinsics, and disjoint parts of one output for the threads of a pool",
    ),
    ("crates/ds4-weights/src/mapping.rs", "memory-mapped files"),
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.iter().filter(|s| !ALLOWED.iter().any(|(prefix, _)| s.name().starts_with(prefix))) {
        let code = source::code_only(&file.text);
        for (at, _) in code.lines().enumerate().filter(|(_, line)| source::has_word(line, "unsafe")) {
            problems.push(format!("{}:{}: `unsafe` is not allowed here", file.name(), at + 1));
        }
        if code.contains("allow(unsafe_code") || code.contains("expect(unsafe_code") {
            problems.push(format!("{} reopens the `unsafe_code` lint", file.name()));
        }
    }
    problems
}
