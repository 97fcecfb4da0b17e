//! Matrix product with stored weights of any format.

use std::ops::Range;

use ds4_dtype::Floats;

use super::block_linear;
use super::convert::widen;
use super::lanes::LANES;
use super::panel::COLUMNS;
use super::storage::{Affine4, Affine8, Dense, Element};
use super::stored_product::{Work, decode, product};
use crate::disjoint::Columns;
use crate::rows::Rows;
use crate::scratch::Scratch;
use crate::{AffineMatrix, Matrix};

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn block(x: Rows<'_>, w: Matrix<'_>, k: usize, columns: Range<usize>, out: &mut Columns<'_, f32>) {
    match w {
        Matrix::Dense(Floats::F32(w)) => dense(x, w, k, columns, out),
        Matrix::Dense(Floats::F16(w)) => dense(x, w, k, columns, out),
        Matrix::Dense(Floats::Bf16(w)) => dense(x, w, k, columns, out),
        Matrix::Affine(w) if w.group == 32 => affine::<4>(x, w, k, columns, out),
        Matrix::Affine(w) => affine::<8>(x, w, k, columns, out),
        Matrix::Block(w) => block_linear::block(x, &w, k, columns, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dense<T: Element>(x: Rows<'_>, w: &[T], k: usize, columns: Range<usize>, out: &mut Columns<'_, f32>) {
    let mut work = Work::new(x.len());
    let rows = |n: usize| Dense::new(&w[n * k..(n + 1) * k]);
    for n in columns.clone().step_by(COLUMNS) {
        let count = COLUMNS.min(columns.end - n);
        product(x, count, |r| rows(n + r), k, n - columns.start, &mut work, out);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn affine<const SPAN: usize>(
    x: Rows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    let mut work = Work::new(x.len());
    let groups = k / w.group;
    let shift = (w.group / (SPAN * LANES)).ilog2();
    let (mut scales, mut biases) = (Scratch::new(COLUMNS * groups), Scratch::new(COLUMNS * groups));
    for n in columns.clone().step_by(COLUMNS) {
        let count = COLUMNS.min(columns.end - n);
        let rows = w.rows(n, count, k);
        widen(rows.scales, &mut scales[..count * groups]);
        widen(rows.biases, &mut biases[..count * groups]);
        let of = |r: usize| (&scales[r * groups..][..groups], &biases[r * groups..][..groups]);
        let at = n - columns.start;
        if w.bits == 4 {
            let words = k / LANES;
            let row = |r: usize| {
                let (scales, biases) = of(r);
                let words = rows.packed[r * words..][..words].as_chunks::<SPAN>().0;
                Affine4 { words, scales, biases, shift }
            };
            product(x, count, row, k, at, &mut work, out);
        } else {
            let bytes: &[u8] = bytemuck::cast_slice(rows.packed);
            let row = |r: usize| {
                let (scales, biases) = of(r);
                let bytes = bytes[r * k..][..k].as_chunks::<LANES>().0.as_chunks::<SPAN>().0;
                Affine8 { bytes, scales, biases, shift }
            };
            product(x, count, row, k, at, &mut work, out);
        }
    }
}

/// `out` = row `row` of `w`, which has rows of `k` elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn affine_row(w: AffineMatrix<'_>, row: usize, k: usize, out: &mut [f32]) {
    // Groups are whole numbers of vectors, so the row is one too.
    let out = out.as_chunks_mut().0;
    let w = w.rows(row, 1, k);
    let (mut scales, mut biases) = (Scratch::new(w.scales.len()), Scratch::new(w.biases.len()));
    widen(w.scales, &mut scales);
    widen(w.biases, &mut biases);
    let shift = (w.group / 32).ilog2();
    if w.bits == 4 {
        let words = w.packed.as_chunks::<4>().0;
        decode(Affine4 { words, scales: &scales, biases: &biases, shift }, 0, out);
    } else {
        let bytes: &[u8] = bytemuck::cast_slice(w.packed);
        let bytes = bytes.as_chunks::<LANES>().0.as_chunks::<4>().0;
        decode(Affine8 { bytes, scales: &scales, biases: &biases, shift }, 0, out);
    }
}
