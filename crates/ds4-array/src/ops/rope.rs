//! Rotary position embedding.

use crate::primitive::Primitive;
use crate::{Array, ArrayError};

use super::check;

/// Rotates the first R elements of each head of x [L, H, D] by the angles of its row: element i pairs with element
/// i + R/2. `cos` and `sin` are [L, R/2]. Source: Su et al., "RoFormer", in the half-split layout.
pub fn rope(x: &Array, cos: &Array, sin: &Array) -> Result<Array, ArrayError> {
    let op = "rope";
    check::f32(op, "x", x)?;
    check::f32(op, "cos", cos)?;
    check::f32(op, "sin", sin)?;
    check::shape(op, "x", x, &[None, None, None])?;
    check::shape(op, "cos", cos, &[Some(x.shape()[0]), None])?;
    check::shape(op, "sin", sin, &[Some(x.shape()[0]), Some(cos.shape()[1])])?;
    let (dims, head) = (cos.shape()[1] * 2, x.shape()[2]);
    check::value(op, "rotated dimensions", dims, dims <= head, || format!("at most {head}"))?;
    let inputs = vec![x.clone(), cos.clone(), sin.clone()];
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::Rope { dims }, inputs))
}
