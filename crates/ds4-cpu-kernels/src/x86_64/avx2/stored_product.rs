//! The product with a block of stored weight rows, whatever their form.
//!
//! A few rows of activations may multiply weights as they are decoded, in registers. More rows share a decoded panel of a dozen
//! weight rows. Both add the same products in the same order, so they agree to the last bit.

use std::arch::x86_64::*;

use super::lanes::{LANES, load, store, sum_of_4};
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

/// The same without a panel, for at most four rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn few<S: Storage>(
    x: Rows<'_>,
    count: usize,
    row: impl Fn(usize) -> S,
    at: usize,
    out: &mut Columns<'_, f32>,
) {
    let vectors = |i: usize| x.row(i).as_chunks().0;
    // As many weight rows as keep enough sums going and fit into the registers beside them.
    match x.len() {
        1 => tiles::<S, 1, 4>([vectors(0)], count, row, at, out),
        2 => tiles::<S, 2, 4>([vectors(0), vectors(1)], count, row, at, out),
        3 => tiles::<S, 3, 3>([vectors(0), vectors(1), vectors(2)], count, row, at, out),
        _ => tiles::<S, 4, 3>([vectors(0), vectors(1), vectors(2), vectors(3)], count, row, at, out),
    }
}

/// `out[r, at + c]` = `x[r]` * `row(c)` for `c` below `count`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tiles<S: Storage, const R: usize, const N: usize>(
    x: [&[[f32; LANES]]; R],
    count: usize,
    row: impl Fn(usize) -> S,
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
            let sums: [f32; 4] = bytemuck::must_cast(sums);
            let out = &mut out.row(r)[at + first..=at + first + last];
            // A copy of a length that is known is a store or two, one of any length a call.
            match out.first_chunk_mut::<N>() {
                Some(out) => out.copy_from_slice(&sums[..N]),
                None => out.copy_from_slice(&sums[..=last]),
            }
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
    for i in 0..length / S::SPAN {
        // SAFETY: the features are enabled here.
        let mut spans = [unsafe { rows[0].span(i) }; N];
        for n in 1..N {
            // SAFETY: the features are enabled here.
            spans[n] = unsafe { rows[n].span(i) };
        }
        for row in &rows {
            // SAFETY: the features are enabled here.
            unsafe { row.prefetch(i, AHEAD) };
        }
        let mut here = x;
        for x in &mut here {
            *x = &x[i * S::SPAN..][..S::SPAN];
        }
        #[allow(clippy::needless_range_loop)] // `j` counts in the span as well
        for j in 0..S::SPAN {
            let mut weights = [_mm256_setzero_ps(); N];
            for n in 0..N {
                // SAFETY: the features are enabled here.
                weights[n] = unsafe { S::vector(spans[n], j) };
            }
            for r in 0..R {
                let x = load(&here[r][j]);
                for n in 0..N {
                    acc[r][n] = _mm256_fmadd_ps(weights[n], x, acc[r][n]);
                }
            }
        }
    }
    let mut sums = [_mm_setzero_ps(); R];
    for r in 0..R {
        let mut four = [_mm256_setzero_ps(); 4];
        four[..N].copy_from_slice(&acc[r]);
        sums[r] = sum_of_4(four);
    }
    sums
}

/// `out` = the vectors of `row` from `from` on, a whole number of spans.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn decode<S: Storage>(row: S, from: usize, out: &mut [[f32; LANES]]) {
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
