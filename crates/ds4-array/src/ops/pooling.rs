//! Pooling of windows of rows.

use crate::primitive::Primitive;
use crate::{Array, ArrayError, Shape};

use super::check;

/// For each window the sum over its rows of softmax(gates) * values, the softmax over the window for each channel:
/// `values` and `gates` [B, P, D], result [B, D]. A gate of minus infinity leaves its row out.
pub fn gated_pool(values: &Array, gates: &Array) -> Result<Array, ArrayError> {
    let op = "gated_pool";
    check::f32(op, "values", values)?;
    check::f32(op, "gates", gates)?;
    check::shape(op, "values", values, &[None, None, None])?;
    let [windows, rows, width] = [values.shape()[0], values.shape()[1], values.shape()[2]];
    check::shape(op, "gates", gates, &[Some(windows), Some(rows), Some(width)])?;
    let inputs = [values.clone(), gates.clone()];
    Ok(Array::lazy(
        values.stream(),
        Shape::from([windows, width]),
        values.dtype(),
        Primitive::GatedPool,
        inputs,
    ))
}
