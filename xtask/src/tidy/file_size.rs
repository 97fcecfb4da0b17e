//! No Rust file is longer than 1,000 lines without its tests; 600 is what we want.

use super::{Source, source};

const WANTED: usize = 600;
const MOST: usize = 1000;

/// Files that may be longer, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources {
        let lines = source::before_tests(&file.text).lines().count();
        let excepted = EXCEPTIONS.iter().any(|(name, _)| *name == file.name());
        if lines > MOST && !excepted {
            problems.push(format!(
                "{} has {lines} lines without its tests, at most {MOST} are allowed",
                file.name()
            ));
        } else if lines > WANTED && !excepted {
            println!("tidy: note: {} has {lines} lines without its tests, {WANTED} are wanted", file.name());
        }
    }
    problems
}
