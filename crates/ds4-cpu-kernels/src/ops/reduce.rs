//! Sums, means and maxima along a dimension.

use crate::Cpu;

/// What to make of the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Their sum; 0 of none
    Sum,
    /// Their sum divided by their number
    Mean,
    /// The largest; NaN if there is one; minus infinity of none
    Max,
}

/// `out[r]` = op of row `x[r]`, with `x` [R, C] and `out` \[R\].
pub fn reduce(cpu: &Cpu, op: ReduceOp, x: &[f32], out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    debug_assert_eq!(x.len() % out.len(), 0);
    let width = x.len() / out.len();
    cpu.for_each_rows(out, 1, 2 * width, |first, out| {
        for (i, out) in out.iter_mut().enumerate() {
            *out = dispatch!(cpu, reduce::row(op, &x[(first + i) * width..(first + i + 1) * width]));
        }
    });
}

/// `out[a, c]` = mean over `b` of `x[a, b, c]`, with `x` [A, `middle`, `width`] and `out` [A, `width`].
pub fn mean_middle(cpu: &Cpu, x: &[f32], middle: usize, width: usize, out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len() * middle);
    let size = middle * width;
    cpu.for_each_rows(out, width, 2 * size, |first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            crate::scalar::reduce::mean_of_rows(&x[(first + i) * size..(first + i + 1) * size], out);
        }
    });
}
