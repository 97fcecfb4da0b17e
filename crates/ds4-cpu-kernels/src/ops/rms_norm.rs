//! Root-mean-square normalisation of rows or of groups within rows.

use ds4_dtype::Floats;

use crate::scratch::Scratch;
use crate::{BinaryOp, Cpu};

/// `x / sqrt(mean(x^2) + eps) * (weight_offset + weight)`.
///
/// `x` and `out` are rows of `width` elements; the mean is over each run of `group` elements (`group` = `width` for the
/// usual norm, the head size for norms by head). `weight` has `width` elements; without one the factor is 1.
/// `weight_offset` is 1 for weights stored around zero, else 0.
#[allow(clippy::too_many_arguments)] // each one is a fact of the norm
pub fn rms_norm(
    cpu: &Cpu,
    x: &[f32],
    weight: Option<Floats<'_>>,
    weight_offset: f32,
    width: usize,
    group: usize,
    eps: f32,
    out: &mut [f32],
) {
    debug_assert_eq!(x.len(), out.len());
    debug_assert!(group > 0 && width.is_multiple_of(group));
    debug_assert!(weight.is_none_or(|weight| weight.len() == width));
    // Widened once, not once a row.
    let weight = weight.map(|weight| {
        let mut effective = Scratch::new(width);
        dispatch!(cpu, convert::widen(weight, &mut effective));
        dispatch!(cpu, binary::with_value(BinaryOp::Add, &mut effective, weight_offset));
        effective
    });
    cpu.for_each_rows(out, width, 4 * width, |first, out| {
        let x = &x[first * width..first * width + out.len()];
        dispatch!(cpu, rms_norm::rows(x, weight.as_deref(), width, group, eps, out));
    });
}
