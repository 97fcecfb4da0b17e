//! Normalisations over the last axis.

use crate::primitive::Primitive;
use crate::{Array, ArrayError};

use super::check;

/// x / sqrt(mean(x^2) + eps) * (weight_offset + weight), the mean over each run of `group` elements of the last axis.
///
/// `weight` `[W]` is as wide as the last axis. Zero-centred weights
/// have offset 1, plain ones 0. Source: Zhang and Sennrich, "Root Mean Square Layer Normalization".
pub fn rms_norm(
    x: &Array,
    weight: Option<&Array>,
    weight_offset: f32,
    group: usize,
    eps: f32,
) -> Result<Array, ArrayError> {
    let op = "rms_norm";
    check::f32(op, "x", x)?;
    let width = x.shape().width();
    check::value(op, "group", group, group > 0 && width.is_multiple_of(group), || {
        format!("a divisor of {width}")
    })?;
    if let Some(weight) = weight {
        check::floats(op, "weight", weight)?;
        check::shape(op, "weight", weight, &[Some(width)])?;
    }
    let inputs = [Some(x), weight].into_iter().flatten().cloned();
    let primitive = Primitive::RmsNorm { group, weight_offset, eps };
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), primitive, inputs))
}

/// x * scale / sqrt(sum(x^2) + eps) over the last axis.
pub fn l2_norm(x: &Array, eps: f32, scale: f32) -> Result<Array, ArrayError> {
    check::f32("l2_norm", "x", x)?;
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::L2Norm { eps, scale }, [x.clone()]))
}
