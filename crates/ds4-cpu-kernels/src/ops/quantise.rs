//! Rounding activations to 8-bit integers before a product with affine weights.

use crate::Cpu;
use crate::disjoint::Parts;
use crate::quantised::Quantised;

/// Rounds the rows of `x` ([rows, k], at least one) by groups of `group`, for weights of `bits` bits.
pub(crate) fn quantise(cpu: &Cpu, x: &[f32], group: usize, bits: u32, k: usize, out: &mut Quantised) {
    let (width, groups) = make_room(cpu, x, group, bits, k, out);
    let (lines, scales, sums) = out.parts_mut();
    let (scales, sums) = (Parts::new(scales), Parts::new(sums));
    cpu.for_each_rows(lines, width, 2 * k, |first, lines| {
        for (i, lines) in lines.chunks_exact_mut(width).enumerate() {
            let row = first + i;
            let range = row * groups..(row + 1) * groups;
            // SAFETY: each row has its own scales and sums, and belongs to one task.
            let (scales, sums) = unsafe { (scales.range(range.clone()), sums.range(range)) };
            let x = &x[row * k..(row + 1) * k];
            dispatch!(cpu, quantise::row(x, group, bits, lines, scales, sums));
        }
    });
}

/// The same on this thread alone.
pub(crate) fn quantise_here(cpu: &Cpu, x: &[f32], group: usize, bits: u32, k: usize, out: &mut Quantised) {
    let (width, groups) = make_room(cpu, x, group, bits, k, out);
    let (lines, scales, sums) = out.parts_mut();
    let lines = lines.chunks_exact_mut(width);
    let sums = scales.chunks_exact_mut(groups).zip(sums.chunks_exact_mut(groups));
    for ((x, lines), (scales, sums)) in x.chunks_exact(k).zip(lines).zip(sums) {
        dispatch!(cpu, quantise::row(x, group, bits, lines, scales, sums));
    }
}

/// Makes room for the rows of `x`: returns the lines and the groups of a row.
fn make_room(cpu: &Cpu, x: &[f32], group: usize, bits: u32, k: usize, out: &mut Quantised) -> (usize, usize) {
    let (width, groups) = (k.div_ceil(dispatch!(cpu, quantise::elements_per_line(bits))), k / group);
    out.resize(x.len() / k, width, groups);
    (width, groups)
}
