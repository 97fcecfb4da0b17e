//! Some columns of a row of a delta rule's state, held in vectors.

use std::arch::x86_64::*;

use super::lanes::{LANES, load_some, store_some};

/// `N` vectors of `x`; what `x` does not reach is zero.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn vectors<const N: usize>(x: &[f32]) -> [__m256; N] {
    let mut out = [_mm256_setzero_ps(); N];
    for (out, x) in out.iter_mut().zip(x.chunks(LANES)) {
        *out = load_some(x);
    }
    out
}

/// The elements of `x` that `out` has.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store_vectors<const N: usize>(x: [__m256; N], out: &mut [f32]) {
    for (out, x) in out.chunks_mut(LANES).zip(x) {
        store_some(x, out);
    }
}
