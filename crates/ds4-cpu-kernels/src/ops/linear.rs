//! Matrix product with a weight matrix, dequantised on the way.

use super::product::{COLUMN_STEP, Product, ROW_BLOCK};
use crate::disjoint::Parts;
use crate::{Cpu, Matrix};

/// `out` = `x` * `w`^T, with `x` [m, k], `w` [n, k] and `out` [m, n].
///
/// An affine weight counts as `fma(q, scale, bias)` in float32: the result has the same bits as with a dense float32
/// matrix of these values. With [`Activations::Int8`](crate::Activations::Int8) and affine weights the rows of `x` are
/// rounded first.
pub fn linear(cpu: &Cpu, x: &[f32], w: Matrix<'_>, m: usize, n: usize, k: usize, out: &mut [f32]) {
    debug_assert_eq!(x.len(), m * k);
    debug_assert!(w.is_valid(n, k));
    debug_assert_eq!(out.len(), m * n);
    if k == 0 || out.is_empty() {
        return out.fill(0.0);
    }
    Product::with(cpu, x, w, None, k, |product| {
        let columns = cpu.units_per_task(n, product.cost(m.min(ROW_BLOCK) * k)).next_multiple_of(COLUMN_STEP);
        let column_blocks = n.div_ceil(columns);
        let out = Parts::new(out);
        cpu.for_each_task(column_blocks * m.div_ceil(ROW_BLOCK), product.cost(m * n * k), &|task| {
            let first = task % column_blocks * columns;
            let columns = first..n.min(first + columns);
            let rows = task / column_blocks * ROW_BLOCK;
            let rows = rows..m.min(rows + ROW_BLOCK);
            // SAFETY: each task has its own block of rows and columns.
            let mut out = unsafe { out.columns(rows.start * n + first, rows.len(), n, columns.len()) };
            product.block(cpu, rows, columns, k, &mut out);
        });
    });
}
