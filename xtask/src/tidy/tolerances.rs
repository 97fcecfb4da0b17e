//! Tests take their tolerances from the table in ds4-testkit and write none of their own.

use super::{Source, source};

/// Path prefixes that the rule leaves out.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/ds4-testkit/", "the table itself"),
    (
        "crates/ds4-sampling/",
        "float64 functions of a few values against closed forms, bit for bit where recorded",
    ),
    ("xtask/", "compares files, not engines"),
];

/// Lines that may hold a literal limit, by file and a part of the line, each with its reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "crates/ds4-dtype/src/block_formats/affine.rs",
        "scales[0].abs() * 1e-4",
        "how near a quantised zero comes to zero: a property of the format, in units of its step",
    ),
    (
        "crates/ds4-cpu-kernels/tests/scalar_agreement.rs",
        "softplus[8] / 3.8e-44",
        "a subnormal of a few significant bits: the literal is the value, not a limit",
    ),
];

/// Words that make a small literal on the same line a tolerance and not an epsilon of a formula.
const MARKS: &[&str] = &["abs()", "tolerance", " < ", " <= "];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.iter().filter(|s| !EXEMPT.iter().any(|(prefix, _)| s.name().starts_with(prefix))) {
        let name = file.name();
        let first = first_line_of_tests(file);
        for (at, line) in source::code_only(&file.text).lines().enumerate().skip(first) {
            let excepted = EXCEPTIONS.iter().any(|(path, part, _)| *path == name && line.contains(part));
            if !excepted && has_small_literal(line) && MARKS.iter().any(|mark| line.contains(mark)) {
                problems
                    .push(format!("{name}:{}: a tolerance of its own; use ds4_testkit::tolerance", at + 1));
            }
        }
    }
    problems
}

/// Line number of the first test code, or past the end when there is none.
fn first_line_of_tests(file: &Source) -> usize {
    let is_test_file = file.path.components().any(|c| c.as_os_str() == "tests")
        || file.path.file_name().is_some_and(|name| name == "tests.rs");
    if is_test_file {
        return 0;
    }
    let code = source::before_tests(&file.text);
    if code.len() == file.text.len() { usize::MAX } else { code.lines().count() }
}

/// A literal like `1e-5`.
fn has_small_literal(line: &str) -> bool {
    let bytes = line.as_bytes();
    line.match_indices("e-").any(|(at, _)| {
        at > 0 && bytes[at - 1].is_ascii_digit() && bytes.get(at + 2).is_some_and(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[Source { path: path.into(), text: text.to_owned() }]).len()
    }

    #[test]
    fn only_limits_in_tests_are_found() {
        let limit = "assert!((a - b).abs() < 1e-5);\n";
        assert_eq!(problems("crates/x/tests/a.rs", limit), 1);
        assert_eq!(problems("crates/x/src/a.rs", limit), 0);
        assert_eq!(
            problems("crates/x/src/a.rs", &format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{limit}}}")),
            1
        );
        assert_eq!(problems("crates/x/tests/a.rs", "let epsilon = 1e-6;\n"), 0);
        assert_eq!(problems("crates/x/tests/a.rs", "assert_eq!(x, 1e-9);\n"), 0);
        assert_eq!(problems("crates/ds4-testkit/src/a.rs", limit), 0);
    }
}
