//! Sums of weighted rows: the inner step of a product with an untransposed matrix.

use std::arch::x86_64::*;

use super::lanes::{LANES, load_some, store_some};

/// `out` += sum over `r` of `x[r]` * row `r` of `rows`, whose rows are as wide as `out`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn add_rows(x: &[f32], rows: &[f32], out: &mut [f32]) {
    let width = out.len();
    let mut at = 0;
    while at + 4 * LANES <= width {
        add::<4>(x, rows, width, at, &mut out[at..at + 4 * LANES]);
        at += 4 * LANES;
    }
    while at < width {
        let end = width.min(at + LANES);
        add::<1>(x, rows, width, at, &mut out[at..end]);
        at = end;
    }
}

/// The columns from `at` on, as many as `out` has, in `N` vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const N: usize>(x: &[f32], rows: &[f32], width: usize, at: usize, out: &mut [f32]) {
    let mut sums = [_mm256_setzero_ps(); N];
    for (sum, out) in sums.iter_mut().zip(out.chunks(LANES)) {
        *sum = load_some(out);
    }
    for (x, row) in x.iter().zip(rows.chunks_exact(width)) {
        let x = _mm256_set1_ps(*x);
        for (sum, row) in sums.iter_mut().zip(row[at..at + out.len()].chunks(LANES)) {
            *sum = _mm256_fmadd_ps(x, load_some(row), *sum);
        }
    }
    for (sum, out) in sums.into_iter().zip(out.chunks_mut(LANES)) {
        store_some(sum, out);
    }
}
