//! Rounding activations to 8-bit integers before a product with affine weights.

use crate::disjoint::Parts;
use crate::quantised::Quantised;
use crate::{AffineMatrix, Cpu};

/// Rounds the rows of `x` ([rows, k], at least one) by the groups of `w`.
pub(crate) fn quantise(cpu: &Cpu, x: &[f32], w: AffineMatrix<'_>, k: usize, out: &mut Quantised) {
    let (rows, groups) = (x.len() / k, k / w.group);
    let width = k.div_ceil(dispatch!(cpu, quantise::elements_per_line(w.bits)));
    out.resize(rows, width, groups);
    let (lines, scales, sums) = out.parts_mut();
    let (scales, sums) = (Parts::new(scales), Parts::new(sums));
    cpu.for_each_rows(lines, width, 2 * k, |first, lines| {
        for (i, lines) in lines.chunks_exact_mut(width).enumerate() {
            let row = first + i;
            let range = row * groups..(row + 1) * groups;
            // SAFETY: each row has its own scales and sums, and belongs to one task.
            let (scales, sums) = unsafe { (scales.range(range.clone()), sums.range(range)) };
            let x = &x[row * k..(row + 1) * k];
            dispatch!(cpu, quantise::row(x, w.group, w.bits, lines, scales, sums));
        }
    });
}
