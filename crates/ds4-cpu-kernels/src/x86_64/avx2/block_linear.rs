//! Matrix product with small floats that have a scale a block, decoded in registers for one row of activations and by the
//! panel for more. Both add the same products in the same order.

use std::arch::x86_64::*;
use std::ops::Range;

use super::block_storage::{E2m1Row, E4M3_FACTOR, E4m3Row};
use super::lanes::{LANES, load, store, store_some, sum_of_4};
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::storage::Storage;
use crate::disjoint::Columns;
use crate::rows::{Rows, padded_width};
use crate::{BlockCodes, BlockMatrix};

/// Vectors of K in a panel.
const PANEL: usize = 64;

/// Weight rows that one row of activations is multiplied with at a time.
const TOGETHER: usize = 4;

/// Rows that weights are fetched ahead of use.
const AHEAD: usize = 2 * TOGETHER;

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn block(
    x: Rows<'_>,
    w: &BlockMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    let count = k.div_ceil(w.block_columns);
    let mut scales = vec![0.0; COLUMNS * count];
    let mut work = Work::new(x.len());
    for n in columns.clone().step_by(COLUMNS) {
        let rows = COLUMNS.min(columns.end - n);
        for (r, scales) in scales.chunks_exact_mut(count).take(rows).enumerate() {
            w.scales_of(n + r, k, factor(w.codes), scales);
        }
        let at = n - columns.start;
        let scales = |r: usize| &scales[r * count..][..count];
        match w.codes {
            BlockCodes::E4m3 => product(x, rows, |r| e4m3(w, n + r, k, scales(r)), k, at, &mut work, out),
            BlockCodes::E2m1 => product(x, rows, |r| e2m1(w, n + r, k, scales(r)), k, at, &mut work, out),
        }
    }
}

/// `out` = row `row` of a matrix with rows of `k` elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(w: &BlockMatrix<'_>, row: usize, k: usize, out: &mut [f32]) {
    let mut scales = vec![0.0; k.div_ceil(w.block_columns)];
    w.scales_of(row, k, factor(w.codes), &mut scales);
    let mut vectors = vec![[0.0; LANES]; padded_width(k) / LANES];
    match w.codes {
        BlockCodes::E4m3 => decode(e4m3(w, row, k, &scales), 0, &mut vectors),
        BlockCodes::E2m1 => decode(e2m1(w, row, k, &scales), 0, &mut vectors),
    }
    for (vector, out) in vectors.iter().zip(out.chunks_mut(LANES)) {
        store_some(load(vector), out);
    }
}

/// What the scales are multiplied with for the row types below.
fn factor(codes: BlockCodes) -> f32 {
    match codes {
        BlockCodes::E4m3 => E4M3_FACTOR,
        BlockCodes::E2m1 => 1.0,
    }
}

fn e4m3<'a>(w: &BlockMatrix<'a>, row: usize, k: usize, scales: &'a [f32]) -> E4m3Row<'a> {
    E4m3Row { codes: w.row(row, k), scales, block: w.block_columns.div_ceil(LANES) }
}

fn e2m1<'a>(w: &BlockMatrix<'a>, row: usize, k: usize, scales: &'a [f32]) -> E2m1Row<'a> {
    E2m1Row { codes: w.row(row, k).as_chunks().0, scales, block: w.block_columns.div_ceil(2 * LANES) }
}

/// Decoded weights and partial sums, for more than one row of activations.
struct Work {
    panel: Vec<[f32; LANES]>,
    sums: Vec<Sums>,
}

impl Work {
    fn new(rows: usize) -> Self {
        if rows == 1 {
            return Self { panel: Vec::new(), sums: Vec::new() };
        }
        Self { panel: vec![[0.0; LANES]; COLUMNS * PANEL], sums: vec![[[0.0; LANES]; COLUMNS]; rows] }
    }
}

/// `out[i, at + r]` = `x[i]` * `row(r)` for `r` below `count`, at most [`COLUMNS`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn product<S: Storage>(
    x: Rows<'_>,
    count: usize,
    row: impl Fn(usize) -> S,
    k: usize,
    at: usize,
    work: &mut Work,
    out: &mut Columns<'_, f32>,
) {
    if x.len() == 1 {
        let (x, out) = (x.row(0).as_chunks().0, &mut out.row(0)[at..at + count]);
        for (t, out) in out.chunks_mut(TOGETHER).enumerate() {
            // A short last chunk repeats its last row; the surplus results are dropped.
            let last = out.len() - 1;
            let at = |r: usize| row(t * TOGETHER + r.min(last));
            let sums: [f32; TOGETHER] = bytemuck::must_cast(dot(x, [at(0), at(1), at(2), at(3)]));
            out.copy_from_slice(&sums[..=last]);
        }
        return;
    }
    let length = padded_width(k) / LANES;
    work.sums.fill([[0.0; LANES]; COLUMNS]);
    for from in (0..length).step_by(PANEL) {
        let width = PANEL.min(length - from);
        for (r, panel) in work.panel.chunks_exact_mut(width).take(count).enumerate() {
            decode(row(r), from, panel);
        }
        let part = |i: usize| &x.row(i).as_chunks().0[from..from + width];
        accumulate(part, &work.panel[..count * width], width, &mut work.sums);
    }
    for (i, sums) in work.sums.iter().enumerate() {
        finish(sums, &mut out.row(i)[at..at + count]);
    }
}

/// Products of one row with four.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<S: Storage>(x: &[[f32; LANES]], rows: [S; TOGETHER]) -> __m128 {
    let mut acc = [_mm256_setzero_ps(); TOGETHER];
    for (i, x) in x.chunks_exact(S::SPAN).enumerate() {
        for r in 0..TOGETHER {
            // SAFETY: the features are enabled here.
            let span = unsafe { rows[r].span(i) };
            // SAFETY: the features are enabled here.
            unsafe { rows[r].prefetch(i, AHEAD) };
            for (j, x) in x.iter().enumerate() {
                // SAFETY: the features are enabled here.
                acc[r] = _mm256_fmadd_ps(unsafe { S::vector(span, j) }, load(x), acc[r]);
            }
        }
    }
    sum_of_4(acc)
}

/// `out` = the vectors of `row` from `from` on, a whole number of spans.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn decode<S: Storage>(row: S, from: usize, out: &mut [[f32; LANES]]) {
    for (i, out) in out.chunks_exact_mut(S::SPAN).enumerate() {
        // SAFETY: the features are enabled here.
        let span = unsafe { row.span(from / S::SPAN + i) };
        for (j, out) in out.iter_mut().enumerate() {
            // SAFETY: the features are enabled here.
            store(unsafe { S::vector(span, j) }, out);
        }
    }
}
