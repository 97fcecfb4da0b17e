//! One line per item, and the count at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use ds4_testkit::comparison::{Comparison, Matrix};
use ds4_testkit::tolerance::Tolerance;

/// The items so far.
#[derive(Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    /// Compares computed values with expected ones. An error of the computation is a failed item, and the rest goes on.
    pub(crate) fn close(
        &mut self,
        item: &str,
        expected: &Matrix,
        actual: &anyhow::Result<Matrix>,
        tolerance: Tolerance,
    ) {
        let actual = match actual {
            Ok(actual) => actual,
            Err(error) => return self.failed(item, &format!("{error:#}")),
        };
        if (actual.rows, actual.columns) != (expected.rows, expected.columns) {
            let shape = |m: &Matrix| format!("[{}, {}]", m.rows, m.columns);
            return self.failed(item, &format!("expected logits {}, got {}", shape(expected), shape(actual)));
        }
        let verdict = Comparison::of(expected, actual).within(tolerance);
        if verdict.passed {
            self.passed(item, &verdict.to_string())
        } else {
            self.failed(item, &verdict.to_string())
        }
    }

    /// Runs a check that panics if it does not hold, as tests do, and else gives its figure.
    pub(crate) fn check(&mut self, item: &str, check: impl FnOnce() -> String) {
        // What a failed check leaves half done is dropped with it.
        match catch_unwind(AssertUnwindSafe(check)) {
            Ok(figure) => self.passed(item, &figure),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
                self.failed(item, text);
            }
        }
    }

    /// An item that held.
    pub(crate) fn passed(&mut self, item: &str, figure: &str) {
        self.passed += 1;
        println!("PASS  {item}: {figure}");
    }

    /// An item that did not.
    pub(crate) fn failed(&mut self, item: &str, figure: &str) {
        self.failed += 1;
        println!("FAIL  {item}: {figure}");
    }

    /// Prints the count; the exit code says whether all held.
    pub(crate) fn finish(self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
