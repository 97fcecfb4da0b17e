//! Matrix product with a weight matrix, dequantised on the way.

use crate::disjoint::Parts;
use crate::rows::{Rows, padded, padded_width};
use crate::{Cpu, Matrix};

/// Rows of activations that share one decoding of the weights. More would push the partial sums out of the L2 cache.
pub(crate) const ROW_BLOCK: usize = 128;

/// Columns of output a task takes are a multiple of this, so that only the last task has an incomplete register tile.
pub(crate) const COLUMN_STEP: usize = 12;

/// `out` = `x` * `w`^T, with `x` [m, k], `w` [n, k] and `out` [m, n].
///
/// An affine weight counts as `fma(q, scale, bias)` in float32: the result has the same bits as with a dense float32
/// matrix of these values.
pub fn linear(cpu: &Cpu, x: &[f32], w: Matrix<'_>, m: usize, n: usize, k: usize, out: &mut [f32]) {
    debug_assert_eq!(x.len(), m * k);
    debug_assert!(w.is_valid(n, k));
    debug_assert_eq!(out.len(), m * n);
    if k == 0 {
        return out.fill(0.0);
    }
    let x = padded(x, k);
    let x = Rows::all(&x, padded_width(k));
    let columns = cpu.units_per_task(n, m.min(ROW_BLOCK) * k).next_multiple_of(COLUMN_STEP);
    let column_blocks = n.div_ceil(columns);
    let out = Parts::new(out);
    cpu.for_each_task(column_blocks * m.div_ceil(ROW_BLOCK), m * n * k, &|task| {
        let first = task % column_blocks * columns;
        let columns = first..n.min(first + columns);
        let rows = task / column_blocks * ROW_BLOCK;
        let rows = rows..m.min(rows + ROW_BLOCK);
        // SAFETY: each task has its own block of rows and columns.
        let mut out = unsafe { out.columns(rows.start * n + first, rows.len(), n, columns.len()) };
        dispatch!(cpu, linear::block(x.range(rows), w, k, columns, &mut out));
    });
}
