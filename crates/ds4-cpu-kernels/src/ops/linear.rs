//! Matrix products with weight matrices, dequantised on the way.

use std::ops::Range;

use super::product::{Form, Operand, ROW_BLOCK};
use crate::disjoint::Parts;
use crate::prefetch::Path;
use crate::{Cpu, Matrix};

/// A weight matrix, and where the products with it go.
pub struct LinearTarget<'a> {
    w: Matrix<'a>,
    n: usize,
    out: Parts<'a, f32>,
}

impl<'a> LinearTarget<'a> {
    /// `w` is [n, k], and `out` [m, n] for m rows of activations.
    pub fn new(w: Matrix<'a>, n: usize, out: &'a mut [f32]) -> Self {
        Self { w, n, out: Parts::new(out) }
    }
}

/// `out` = `x` * `w`^T, with `x` [m, k], `w` [n, k] and `out` [m, n].
///
/// An affine weight counts as `fma(q, scale, bias)` in float32: the result has the same bits as with a dense float32
/// matrix of these values. With [`Activations::Int8`](crate::Activations::Int8) and affine weights the rows of `x` are
/// rounded first.
pub fn linear(cpu: &Cpu, x: &[f32], w: Matrix<'_>, m: usize, n: usize, k: usize, out: &mut [f32]) {
    linears(cpu, x, m, k, &mut [LinearTarget::new(w, n, out)]);
}

/// [`linear`] for several weights with the same `x` [m, k]: its rows are rounded once, and small products share the threads with
/// large ones. All weights must take activations in the same form: those of one storage format do.
pub fn linears(cpu: &Cpu, x: &[f32], m: usize, k: usize, targets: &mut [LinearTarget<'_>]) {
    debug_assert_eq!(x.len(), m * k);
    for target in &*targets {
        debug_assert!(target.w.is_valid(target.n, k));
        assert_eq!(target.out.len(), m * target.n, "the size of a product");
    }
    let targets = &*targets;
    let Some(form) = targets.first().map(|target| Form::of(cpu, target.w)) else { return };
    assert!(
        targets.iter().all(|target| Form::of(cpu, target.w) == form),
        "weights that take activations in several forms"
    );
    if m == 0 || k == 0 {
        // SAFETY: the only parts.
        return targets.iter().for_each(|target| unsafe { target.out.range(0..target.out.len()) }.fill(0.0));
    }
    let n = targets.iter().map(|target| target.n).sum();
    let columns = form.columns_per_task(cpu, n, m.min(ROW_BLOCK) * k);
    let column_blocks: usize = targets.iter().map(|target| target.n.div_ceil(columns)).sum();
    form.with(cpu, x, None, k, |x| {
        cpu.for_each_task(column_blocks * m.div_ceil(ROW_BLOCK), form.cost(m * n * k), &|task| {
            let rows = task / column_blocks * ROW_BLOCK;
            let (target, columns) = column_block(targets, columns, task % column_blocks);
            multiply(cpu, x, k, target, rows..m.min(rows + ROW_BLOCK), columns);
        });
    });
}

/// Block `at` of all targets' blocks of `columns` columns: its target and its columns.
fn column_block<'t, 'w>(
    targets: &'t [LinearTarget<'w>],
    columns: usize,
    mut at: usize,
) -> (&'t LinearTarget<'w>, Range<usize>) {
    for target in targets {
        let blocks = target.n.div_ceil(columns);
        if at < blocks {
            return (target, at * columns..target.n.min((at + 1) * columns));
        }
        at -= blocks;
    }
    unreachable!("there are fewer blocks than tasks")
}

/// A block of a target's products; each is computed once.
fn multiply(
    cpu: &Cpu,
    x: Operand<'_>,
    k: usize,
    target: &LinearTarget<'_>,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let LinearTarget { w, n, out } = target;
    // SAFETY: each task has its own block of rows and columns of a target.
    let mut out = unsafe { out.columns(rows.start * n + columns.start, rows.len(), *n, columns.len()) };
    x.times(cpu, *w, rows, columns, Path::STRAIGHT, k, &mut out);
}
