//! Matrix product with stored weights.
//!
//! One row of activations multiplies weights as they are decoded, in registers. More rows share a decoded panel of a
//! dozen weight rows. Both add the same products in the same order, so they agree to the last bit.

use std::arch::x86_64::*;
use std::ops::Range;

use ds4_dtype::Floats;

use super::block_linear;
use super::convert::widen;
use super::lanes::{LANES, load, store, sum_of_4};
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::storage::{Affine4, Affine8, Dense, Element, Storage};
use crate::disjoint::Columns;
use crate::rows::{Rows, padded_width};
use crate::scratch::Scratch;
use crate::{AffineMatrix, Matrix};

/// Vectors of K in a panel: a dozen rows of them take 24 KiB and leave room for activations in the L1 cache.
const PANEL: usize = 64;

/// Weight rows that one row of activations is multiplied with at a time: as many independent sums.
const TOGETHER: usize = 4;

/// Rows that weights are fetched ahead of use. Hardware does not follow rows that are decoded side by side well enough.
const AHEAD: usize = 2 * TOGETHER;

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

/// Decoded weights and partial sums of a block of columns.
struct Work {
    panel: Scratch,
    sums: Scratch,
}

impl Work {
    fn new(rows: usize) -> Self {
        // A single row needs neither.
        let several = usize::from(rows > 1) * LANES * COLUMNS;
        Self { panel: Scratch::new(several * PANEL), sums: Scratch::new(several * rows) }
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
    let panels = work.panel.as_chunks_mut().0;
    let sums: &mut [Sums] = work.sums.as_chunks_mut().0.as_chunks_mut().0;
    sums.fill([[0.0; LANES]; COLUMNS]);
    for from in (0..length).step_by(PANEL) {
        let width = PANEL.min(length - from);
        for (r, panel) in panels.chunks_exact_mut(width).take(count).enumerate() {
            decode(row(r), from, panel);
        }
        let part = |i: usize| &x.row(i).as_chunks().0[from..from + width];
        accumulate(part, &panels[..count * width], width, sums);
    }
    for (i, sums) in sums.iter().enumerate() {
        finish(sums, &mut out.row(i)[at..at + count]);
    }
}

/// Products of one row with four.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<S: Storage>(x: &[[f32; LANES]], rows: [S; TOGETHER]) -> __m128 {
    let mut acc = [_mm256_setzero_ps(); TOGETHER];
    for (i, x) in x.chunks_exact(S::SPAN).enumerate() {
        let [a, b, c, d] = rows;
        // SAFETY: the features are enabled here.
        let spans = unsafe { [a.span(i), b.span(i), c.span(i), d.span(i)] };
        for row in &rows {
            // SAFETY: the features are enabled here.
            unsafe { row.prefetch(i, AHEAD) };
        }
        for (j, x) in x.iter().enumerate() {
            let x = load(x);
            for r in 0..TOGETHER {
                // SAFETY: the features are enabled here.
                acc[r] = _mm256_fmadd_ps(unsafe { S::vector(spans[r], j) }, x, acc[r]);
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
        // SAFETY: the features are enabled here.
        unsafe { row.prefetch(from / S::SPAN + i, COLUMNS) };
        for (j, out) in out.iter_mut().enumerate() {
            // SAFETY: the features are enabled here.
            store(unsafe { S::vector(span, j) }, out);
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
