//! The expert layers' matrix product: each row goes through the matrix of the expert it was routed to.

use super::linear::{COLUMN_STEP, ROW_BLOCK};
use crate::disjoint::Parts;
use crate::rows::{Rows, padded, padded_width};
use crate::{Cpu, Matrix};

/// For each pair `p` of expert `e`: `out[p]` = `x[rows[p]]` * `w[e]`^T.
///
/// `x` is [R, k]; `w` [E * n, k], the experts one after the other; `out` [P, n]. Pairs are sorted by expert: those of
/// `e` are `offsets[e]..offsets[e + 1]` (see [`sort_by_expert`](crate::sort_by_expert)). The weights of an expert are
/// read once for all its rows, those of an unused expert never. A row has the bits [`linear`](crate::linear) gives.
#[allow(clippy::too_many_arguments)] // each one is a fact of the product
pub fn grouped_linear(
    cpu: &Cpu,
    x: &[f32],
    w: Matrix<'_>,
    rows: &[u32],
    offsets: &[u32],
    n: usize,
    k: usize,
    out: &mut [f32],
) {
    let experts = offsets.len().saturating_sub(1);
    debug_assert!(w.is_valid(experts * n, k));
    debug_assert_eq!(offsets.last().map_or(0, |&end| end as usize), rows.len());
    debug_assert_eq!(out.len(), rows.len() * n);
    if k == 0 {
        return out.fill(0.0);
    }
    let x = padded(x, k);
    let x = Rows::indexed(&x, padded_width(k), rows);
    // (expert, first pair, end pair): as many of an expert's rows as share one decoding of its weights.
    let mut groups = Vec::new();
    for (expert, bounds) in offsets.windows(2).enumerate() {
        let (mut first, end) = (bounds[0] as usize, bounds[1] as usize);
        while first < end {
            let next = end.min(first + ROW_BLOCK);
            groups.push((expert, first, next));
            first = next;
        }
    }
    let columns = cpu.units_per_task(groups.len() * n, k * rows.len().div_ceil(groups.len().max(1)));
    let columns = columns.next_multiple_of(COLUMN_STEP).min(n.max(1));
    let column_blocks = n.div_ceil(columns);
    let out = Parts::new(out);
    cpu.for_each_task(column_blocks * groups.len(), rows.len() * n * k, &|task| {
        let (expert, first_row, end_row) = groups[task / column_blocks];
        let first = task % column_blocks * columns;
        let end = n.min(first + columns);
        // SAFETY: each task has its own block of rows and columns.
        let mut out = unsafe { out.columns(first_row * n + first, end_row - first_row, n, end - first) };
        let columns = expert * n + first..expert * n + end;
        dispatch!(cpu, linear::block(x.range(first_row..end_row), w, k, columns, &mut out));
    });
}
