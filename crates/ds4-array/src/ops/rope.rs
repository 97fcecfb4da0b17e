//! Rotary position embedding.

use crate::primitive::Primitive;
use crate::{Array, ArrayError};

use super::check;

/// Rotates the first R elements of each head of x [L, H, D] by the angles of its row: element i pairs with element
/// i + R/2. `cos` and `sin` are [L, R/2]. Source: Su et al., "RoFormer", in the half-split layout.
pub fn rope(x: &Array, cos: &Array, sin: &Array) -> Result<Array, ArrayError> {
    rotated("rope", x, cos, sin, |dims| Primitive::Rope { dims })
}

/// Rotates the last R elements of each head of x [L, H, D] by the angles of its row: elements 2i and 2i + 1 of them
/// are a pair. `cos` and `sin` are [L, R/2]. A negative `sin` turns back. Source: Su et al., "RoFormer".
pub fn rope_pairs(x: &Array, cos: &Array, sin: &Array) -> Result<Array, ArrayError> {
    rotated("rope_pairs", x, cos, sin, |dims| Primitive::RopePairs { dims })
}

fn rotated(
    op: &'static str,
    x: &Array,
    cos: &Array,
    sin: &Array,
    primitive: impl FnOnce(usize) -> Primitive,
) -> Result<Array, ArrayError> {
    check::f32(op, "x", x)?;
    check::f32(op, "cos", cos)?;
    check::f32(op, "sin", sin)?;
    check::shape(op, "x", x, &[None, None, None])?;
    check::shape(op, "cos", cos, &[Some(x.shape()[0]), None])?;
    check::shape(op, "sin", sin, &[Some(x.shape()[0]), Some(cos.shape()[1])])?;
    let (dims, head) = (cos.shape()[1] * 2, x.shape()[2]);
    check::value(op, "rotated dimensions", dims, dims <= head, || format!("at most {head}"))?;
    let inputs = [x.clone(), cos.clone(), sin.clone()];
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), primitive(dims), inputs))
}
