//! Compare a computed matrix with an expected one and say by how much, and where, they differ.

use std::fmt;

use crate::tolerance::Tolerance;

/// Row-major float32 values, for logits one row per token.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// `rows * columns` values.
    pub values: Vec<f32>,
}

impl Matrix {
    /// Wraps row-major `values`; panics if they are not `columns` wide.
    pub fn new(columns: usize, values: Vec<f32>) -> Self {
        assert!(
            columns > 0 && values.len().is_multiple_of(columns),
            "{} values do not fill rows of {columns}",
            values.len()
        );
        Self { rows: values.len() / columns, columns, values }
    }

    /// The values of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// The first `count` rows.
    pub fn first_rows(&self, count: usize) -> Self {
        Self::new(self.columns, self.values[..count * self.columns].to_vec())
    }

    /// The rows from `first` on.
    pub fn rows_from(&self, first: usize) -> Self {
        Self::new(self.columns, self.values[first * self.columns..].to_vec())
    }

    /// The largest magnitude, 0 for an empty matrix.
    pub fn largest(&self) -> f32 {
        self.values.iter().fold(0.0, |most, v| most.max(v.abs()))
    }
}

/// The worst difference between two matrices of equal shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Largest absolute difference; infinite when a computed value is not finite.
    pub max_error: f32,
    /// Row of the worst value.
    pub row: usize,
    /// Column of the worst value.
    pub column: usize,
    /// What was expected there.
    pub expected: f32,
    /// What was computed there.
    pub actual: f32,
    /// Largest magnitude among the expected values.
    pub largest: f32,
}

impl Comparison {
    /// Compares `actual` with `expected`; panics when the shapes differ, which no tolerance excuses.
    pub fn of(expected: &Matrix, actual: &Matrix) -> Self {
        assert_eq!(
            (expected.rows, expected.columns),
            (actual.rows, actual.columns),
            "expected and computed shapes differ"
        );
        let mut worst = Self {
            max_error: 0.0,
            row: 0,
            column: 0,
            expected: expected.values.first().copied().unwrap_or(0.0),
            actual: actual.values.first().copied().unwrap_or(0.0),
            largest: expected.largest(),
        };
        for (at, (&e, &a)) in expected.values.iter().zip(&actual.values).enumerate() {
            let error = if a.is_finite() { (e - a).abs() } else { f32::INFINITY };
            if error > worst.max_error {
                worst = Self {
                    max_error: error,
                    row: at / expected.columns,
                    column: at % expected.columns,
                    expected: e,
                    actual: a,
                    largest: worst.largest,
                };
            }
        }
        worst
    }

    /// Judges the difference by a tolerance.
    pub fn within(self, tolerance: Tolerance) -> Verdict {
        let allowed = tolerance.allowed(self.largest);
        Verdict { passed: self.max_error <= allowed, allowed, comparison: self }
    }
}

/// A comparison and whether it is good enough. Its text is one line with the figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether the largest error is allowed.
    pub passed: bool,
    /// The allowed error.
    pub allowed: f32,
    /// The figures.
    pub comparison: Comparison,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { max_error, row, column, expected, actual, .. } = &self.comparison;
        write!(f, "max error {max_error:.1e}, allowed {:.1e}", self.allowed)?;
        if !self.passed {
            write!(f, "; worst at row {row}, column {column}: expected {expected}, got {actual}")?;
        }
        Ok(())
    }
}

/// Panics with the figures unless `actual` is within `tolerance` of `expected`.
#[track_caller]
pub fn assert_close(expected: &[f32], actual: &[f32], tolerance: Tolerance) {
    let width = expected.len().max(1);
    let verdict =
        Comparison::of(&Matrix::new(width, expected.to_vec()), &Matrix::new(width, actual.to_vec()));
    let verdict = verdict.within(tolerance);
    assert!(verdict.passed, "{verdict} ({})", tolerance.reason);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tolerance::{WeightStorage, logits};

    fn matrix(values: &[f32]) -> Matrix {
        Matrix::new(2, values.to_vec())
    }

    #[test]
    fn the_worst_value_is_found_with_its_place() {
        let c = Comparison::of(&matrix(&[1.0, 2.0, 3.0, -4.0]), &matrix(&[1.0, 2.5, 3.0, -4.1]));
        assert_eq!((c.max_error, c.row, c.column, c.largest), (0.5, 0, 1, 4.0));
    }

    #[test]
    fn a_nan_never_passes() {
        let c = Comparison::of(&matrix(&[1.0, 2.0]), &matrix(&[1.0, f32::NAN]));
        assert!(!c.within(logits(WeightStorage::F32)).passed);
    }

    #[test]
    fn a_failure_names_the_place_and_both_values() {
        let verdict =
            Comparison::of(&matrix(&[0.0, 0.0]), &matrix(&[0.0, 1.0])).within(logits(WeightStorage::F32));
        assert_eq!(
            verdict.to_string(),
            "max error 1.0e0, allowed 1.0e-4; worst at row 0, column 1: expected 0, got 1"
        );
    }

    #[test]
    #[should_panic(expected = "shapes differ")]
    fn other_shapes_are_no_comparison() {
        Comparison::of(&matrix(&[0.0, 0.0]), &matrix(&[0.0; 4]));
    }
}
