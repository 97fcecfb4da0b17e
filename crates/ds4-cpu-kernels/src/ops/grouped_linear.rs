//! The expert layers' matrix product: each row goes through the matrix of the expert it was routed to.

use std::ops::Range;

use super::product::{Form, ROW_BLOCK};
use crate::disjoint::Parts;
use crate::prefetch::Path;
use crate::{Cpu, Matrix};

/// For each pair `p` of expert `e`: `out[p]` = `x[rows[p]]` * `w[e]`^T, or `x[p]` * `w[e]`^T without `rows`.
///
/// `x` is [R, k]; `w` [E * n, k], the experts one after the other; `out` [P, n]. Pairs are sorted by expert: those of
/// `e` are `offsets[e]..offsets[e + 1]` (see [`sort_by_expert`](crate::sort_by_expert)). The weights of an expert are
/// read once for all its rows, those of an unused expert never. A row has the bits [`linear`](crate::linear) gives.
#[allow(clippy::too_many_arguments)] // each one is a fact of the product
pub fn grouped_linear(
    cpu: &Cpu,
    x: &[f32],
    w: Matrix<'_>,
    rows: Option<&[u32]>,
    offsets: &[u32],
    n: usize,
    k: usize,
    out: &mut [f32],
) {
    debug_assert!(w.is_valid(offsets.len().saturating_sub(1) * n, k));
    let pairs = offsets.last().map_or(0, |&end| end as usize);
    debug_assert_eq!(rows.map_or(x.len() / k.max(1), <[u32]>::len), pairs);
    debug_assert_eq!(out.len(), pairs * n);
    if k == 0 || out.is_empty() {
        return out.fill(0.0);
    }
    let form = Form::of(cpu, w);
    form.with(cpu, x, rows, k, |x| {
        // Each expert's rows are cut into blocks that share one decoding of its weights.
        let blocks = |bounds: &[u32]| ((bounds[1] - bounds[0]) as usize).div_ceil(ROW_BLOCK);
        let groups: usize = offsets.windows(2).map(blocks).sum();
        let columns = form.columns_per_task(cpu, groups * n, k * pairs.div_ceil(groups)).min(n);
        let column_blocks = n.div_ceil(columns);
        let out = Parts::new(out);
        cpu.for_each_task(column_blocks * groups, form.cost(pairs * n * k), &|task| {
            let RowBlock { expert, rows, next } = row_block(offsets, task / column_blocks);
            let path = Path { end: (expert + 1) * n, next: next * n };
            let first = task % column_blocks * columns;
            let end = n.min(first + columns);
            // SAFETY: each task has its own block of rows and columns.
            let mut out = unsafe { out.columns(rows.start * n + first, rows.len(), n, end - first) };
            x.times(cpu, w, rows, expert * n + first..expert * n + end, path, k, &mut out);
        });
    });
}

/// Some rows of an expert.
#[derive(Debug, PartialEq)]
struct RowBlock {
    expert: usize,
    /// Its pairs.
    rows: Range<usize>,
    /// The expert of the block that comes next; after the last block the one that would.
    next: usize,
}

/// Block `at` of all experts' blocks of rows.
fn row_block(offsets: &[u32], mut at: usize) -> RowBlock {
    let pairs = |expert: usize| offsets[expert] as usize..offsets[expert + 1] as usize;
    let experts = offsets.len() - 1;
    for expert in 0..experts {
        let Range { start, end } = pairs(expert);
        let blocks = (end - start).div_ceil(ROW_BLOCK);
        if at < blocks {
            let start = start + at * ROW_BLOCK;
            let rows = start..end.min(start + ROW_BLOCK);
            let others = || (expert + 1..experts).find(|&other| !pairs(other).is_empty());
            let next = if at + 1 < blocks { expert } else { others().unwrap_or(expert + 1) };
            return RowBlock { expert, rows, next };
        }
        at -= blocks;
    }
    unreachable!("there are fewer blocks than tasks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_knows_the_expert_that_is_read_after_it() {
        // Expert 1 has two blocks, experts 0 and 2 have nothing to do.
        let end = ROW_BLOCK as u32 + 3;
        let offsets = [0, 0, end, end, end + 1];
        let blocks: Vec<RowBlock> = (0..3).map(|at| row_block(&offsets, at)).collect();
        let end = end as usize;
        assert_eq!(
            blocks,
            [
                RowBlock { expert: 1, rows: 0..ROW_BLOCK, next: 1 },
                RowBlock { expert: 1, rows: ROW_BLOCK..end, next: 3 },
                RowBlock { expert: 3, rows: end..end + 1, next: 4 },
            ]
        );
    }
}
