//! Checks that the operations share. Each error names the operation, the argument, what is needed and what came.

use ds4_dtype::DType;

use crate::{Array, ArrayError, Shape};

/// A float32 array, as activations are.
pub(super) fn f32(op: &'static str, argument: &'static str, array: &Array) -> Result<(), ArrayError> {
    dtype(op, argument, array, "F32", &[DType::F32])
}

/// An array of ids.
pub(super) fn ids(op: &'static str, argument: &'static str, array: &Array) -> Result<(), ArrayError> {
    dtype(op, argument, array, "U32", &[DType::U32])
}

/// An array in any float format.
pub(super) fn floats(op: &'static str, argument: &'static str, array: &Array) -> Result<(), ArrayError> {
    dtype(op, argument, array, "a float format", &[DType::F32, DType::F16, DType::BF16])
}

fn dtype(
    op: &'static str,
    argument: &'static str,
    array: &Array,
    expected: &'static str,
    allowed: &[DType],
) -> Result<(), ArrayError> {
    if allowed.contains(&array.dtype()) {
        return Ok(());
    }
    Err(ArrayError::DType { op, argument, expected, actual: array.dtype() })
}

/// An array of this shape; `None` leaves an axis open.
pub(super) fn shape(
    op: &'static str,
    argument: &'static str,
    array: &Array,
    expected: &[Option<usize>],
) -> Result<(), ArrayError> {
    let actual = *array.shape();
    let fits = actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(size, wanted)| wanted.is_none_or(|wanted| wanted == *size));
    if fits { Ok(()) } else { Err(wrong_shape(op, argument, describe(expected), actual)) }
}

pub(super) fn wrong_shape(
    op: &'static str,
    argument: &'static str,
    expected: String,
    actual: Shape,
) -> ArrayError {
    ArrayError::Shape { op, argument, expected, actual }
}

/// A number that must fulfil a condition.
pub(super) fn value(
    op: &'static str,
    argument: &'static str,
    actual: usize,
    fits: bool,
    expected: impl FnOnce() -> String,
) -> Result<(), ArrayError> {
    if fits { Ok(()) } else { Err(ArrayError::Value { op, argument, expected: expected(), actual }) }
}

fn describe(expected: &[Option<usize>]) -> String {
    let sizes: Vec<String> =
        expected.iter().map(|size| size.map_or("_".to_owned(), |s| s.to_string())).collect();
    format!("[{}]", sizes.join(", "))
}
