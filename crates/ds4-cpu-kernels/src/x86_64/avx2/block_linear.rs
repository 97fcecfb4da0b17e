//! Matrix product with small floats that have a scale a block.

use std::ops::Range;

use super::block_storage::{E2m1Row, E4M3_FACTOR, E4m3Row};
use super::lanes::{LANES, load, store_some};
use super::panel::COLUMNS;
use super::stored_product::{Work, decode, product};
use crate::disjoint::Columns;
use crate::rows::{Rows, padded_width};
use crate::scratch::Scratch;
use crate::{BlockCodes, BlockMatrix};

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
    let mut scales = Scratch::new(COLUMNS * count);
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
    let mut scales = Scratch::new(k.div_ceil(w.block_columns));
    w.scales_of(row, k, factor(w.codes), &mut scales);
    let mut vectors = Scratch::new(padded_width(k));
    let vectors = vectors.as_chunks_mut().0;
    match w.codes {
        BlockCodes::E4m3 => decode(e4m3(w, row, k, &scales), 0, vectors),
        BlockCodes::E2m1 => decode(e2m1(w, row, k, &scales), 0, vectors),
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
