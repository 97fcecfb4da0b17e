//! The product with a block of stored weight rows, whatever their form.
//!
//! One row of activations multiplies weights as they are decoded, in registers. More rows share a decoded panel of a
//! dozen weight rows. Both add the same products in the same order, so they agree to the last bit.

use std::arch::x86_64::*;

use super::lanes::{LANES, load, store, sum_of_4};
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::storage::Storage;
use crate::disjoint::Columns;
use crate::rows::{Rows, padded_width};
use crate::scratch::Scratch;

/// Vectors of K in a panel: a dozen rows of them take 24 KiB and leave room for activations in the L1 cache.
const PANEL: usize = 64;

/// Weight rows that one row of activations is multiplied with at a time: as many independent sums.
const TOGETHER: usize = 4;

/// Rows that weights are fetched ahead of use. Hardware does not follow rows that are decoded side by side well enough.
const AHEAD: usize = 2 * TOGETHER;

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
