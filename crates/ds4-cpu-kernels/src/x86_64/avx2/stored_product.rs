//! The product with a block of stored weight rows, whatever their form.
//!
//! A few rows of activations may multiply weights as they are decoded, in registers. More rows share a decoded panel of a dozen
//! weight rows. Both add the same products in the same order, so they agree to the last bit.

use std::arch::x86_64::*;

use super::lanes::{LANES, load, store, store_first, sum_of_4};
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::storage::Storage;
use crate::disjoint::Columns;
use crate::rows::{Rows, padded_width};
use crate::scratch::Scratch;

/// Vectors of K in a panel: a dozen rows of them take 24 KiB and leave room for activations in the L1 cache.
const PANEL: usize = 64;

/// Rows that weights are fetched ahead of use. Hardware does not follow rows that are decoded side by side well enough.
const AHEAD: usize = 8;

/// Decoded weights and partial sums of a block of columns.
pub(crate) struct Work {
    panel: Scratch,
    sums: Scratch,
}

impl Work {
    pub(crate) fn new(rows: usize) -> Self {
        // A single row needs neither.
        let several = usize::from(rows > 1) * LANES * COLUMNS;
        Self { panel: Scratch::new(several * PANEL), sums: Scratch::new(several * rows) }
    }
}

/// `out[i, at + r]` = `x[i]` * `row(r)` for `r` below `count`, at most [`COLUMNS`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn product<S: Storage>(
    x: Rows<'_>,
    count: usize,
    row: impl Fn(usize) -> S,
    k: usize,
    at: usize,
    work: &mut Work,
    out: &mut Columns<'_, f32>,
) {
    if x.len() <= S::FEW {
        return few(x, count, row, at, out);
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

/// The same without a panel, four rows at a time.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn few<S: Storage>(
    x: Rows<'_>,
    count: usize,
    row: impl Fn(usize) -> S,
    at: usize,
    out: &mut Columns<'_, f32>,
) {
    for i in (0..x.len()).step_by(4) {
        let vectors = |r: usize| x.row(i + r).as_chunks().0;
        // As many weight rows as keep enough sums going and fit into the registers beside them.
        match x.len() - i {
            1 => tiles::<S, 1, 4>([vectors(0)], i, count, &row, at, out),
            2 => tiles::<S, 2, 4>([vectors(0), vectors(1)], i, count, &row, at, out),
            3 => tiles::<S, 3, 3>([vectors(0), vectors(1), vectors(2)], i, count, &row, at, out),
            _ => {
                tiles::<S, 4, 2>([vectors(0), vectors(1), vectors(2), vectors(3)], i, count, &row, at, out);
            }
        }
    }
}

/// `out[i + r, at + c]` = `x[r]` * `row(c)` for `c` below `count`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tiles<S: Storage, const R: usize, const N: usize>(
    x: [&[[f32; LANES]]; R],
    i: usize,
    count: usize,
    row: &impl Fn(usize) -> S,
    at: usize,
    out: &mut Columns<'_, f32>,
) {
    for first in (0..count).step_by(N) {
        // A short last tile repeats its last row; the surplus results are dropped.
        let last = N.min(count - first) - 1;
        let mut rows = [row(first); N];
        for (n, to) in rows.iter_mut().enumerate() {
            *to = row(first + n.min(last));
        }
        for (r, sums) in tile(x, rows).into_iter().enumerate() {
            store_first(sums, &mut out.row(i + r)[at + first..=at + first + last]);
        }
    }
}

/// Products of each row of activations with each weight row, of which there are at most four.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<S: Storage, const R: usize, const N: usize>(x: [&[[f32; LANES]]; R], rows: [S; N]) -> [__m128; R] {
    // Slices of one length let the compiler drop the bounds checks of the loop.
    let length = x[0].len();
    let mut x = x;
    for x in &mut x {
        *x = &x[..length];
    }
    let mut acc = [[_mm256_setzero_ps(); N]; R];
    let spans = rows[0].spans(length);
    for i in 0..spans {
        // SAFETY: the features are enabled here.
        let mut here = [unsafe { rows[0].span(i) }; N];
        for n in 1..N {
            // SAFETY: the features are enabled here.
            here[n] = unsafe { rows[n].span(i) };
        }
        for row in &rows {
            // SAFETY: the features are enabled here.
            unsafe { row.prefetch(i, AHEAD) };
        }
        for j in 0..S::SPAN {
            let mut weights = [_mm256_setzero_ps(); N];
            for n in 0..N {
                // SAFETY: the features are enabled here.
                weights[n] = unsafe { S::vector(here[n], j) };
            }
            add_products(&x, i * S::SPAN + j, weights, &mut acc);
        }
    }
    for at in spans * S::SPAN..length {
        let mut weights = [_mm256_setzero_ps(); N];
        for n in 0..N {
            // SAFETY: the features are enabled here.
            weights[n] = unsafe { rows[n].beyond(at) };
        }
        add_products(&x, at, weights, &mut acc);
    }
    let mut sums = [_mm_setzero_ps(); R];
    if N == 2 && R.is_multiple_of(2) {
        // Two rows fill a sum of four.
        for r in (0..R).step_by(2) {
            let sum = sum_of_4([acc[r][0], acc[r][1], acc[r + 1][0], acc[r + 1][1]]);
            (sums[r], sums[r + 1]) = (sum, _mm_movehl_ps(sum, sum));
        }
        return sums;
    }
    for r in 0..R {
        let mut four = [_mm256_setzero_ps(); 4];
        four[..N].copy_from_slice(&acc[r]);
        sums[r] = sum_of_4(four);
    }
    sums
}

/// `acc[r][n]` += vector `at` of `x[r]` * `weights[n]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_products<const R: usize, const N: usize>(
    x: &[&[[f32; LANES]]; R],
    at: usize,
    weights: [__m256; N],
    acc: &mut [[__m256; N]; R],
) {
    for r in 0..R {
        let x = load(&x[r][at]);
        for n in 0..N {
            acc[r][n] = _mm256_fmadd_ps(weights[n], x, acc[r][n]);
        }
    }
}

/// `out` = the vectors of `row` from `from` on, where a span begins.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn decode<S: Storage>(row: S, from: usize, out: &mut [[f32; LANES]]) {
    let first = from / S::SPAN;
    let spans = row.spans(from + out.len()) - first;
    let (whole, rest) = out.split_at_mut(out.len().min(spans * S::SPAN));
    for (i, out) in whole.chunks_exact_mut(S::SPAN).enumerate() {
        // SAFETY: the features are enabled here.
        let span = unsafe { row.span(first + i) };
        // SAFETY: the features are enabled here.
        unsafe { row.prefetch(first + i, COLUMNS) };
        for (j, out) in out.iter_mut().enumerate() {
            // SAFETY: the features are enabled here.
            store(unsafe { S::vector(span, j) }, out);
        }
    }
    for (i, out) in rest.iter_mut().enumerate() {
        // SAFETY: the features are enabled here.
        store(unsafe { row.beyond(from + whole.len() + i) }, out);
    }
}
