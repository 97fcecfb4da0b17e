//! Some columns of a row of a delta rule's state, held in vectors.

use std::arch::x86_64::*;

use super::lanes::{LANES, load, load_some, store, store_some};

/// `N` vectors of `x`; what `x` does not reach is zero.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn vectors<const N: usize>(x: &[f32]) -> [__m256; N] {
    let mut out = [_mm256_setzero_ps(); N];
    // Nearly always all are whole: one check, and not one for each.
    if let Some(whole) = x.as_chunks().0.first_chunk::<N>() {
        for n in 0..N {
            out[n] = load(&whole[n]);
        }
        return out;
    }
    for (out, x) in out.iter_mut().zip(x.chunks(LANES)) {
        *out = load_some(x);
    }
    out
}

/// The elements of `x` that `out` has.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store_vectors<const N: usize>(x: [__m256; N], out: &mut [f32]) {
    if let Some(whole) = out.as_chunks_mut().0.first_chunk_mut::<N>() {
        for n in 0..N {
            store(x[n], &mut whole[n]);
        }
        return;
    }
    for (out, x) in out.chunks_mut(LANES).zip(x) {
        store_some(x, out);
    }
}

/// The same, past the cache if `streams`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn leave_vectors<const N: usize>(x: [__m256; N], out: &mut [f32], streams: bool) {
    if streams
        && out.as_ptr().cast::<__m256>().is_aligned()
        && let Some(whole) = out.as_chunks_mut::<LANES>().0.first_chunk_mut::<N>()
    {
        for n in 0..N {
            // SAFETY: eight floats, aligned as the instruction needs them.
            unsafe { _mm256_stream_ps(whole[n].as_mut_ptr(), x[n]) };
        }
        return;
    }
    store_vectors(x, out);
}
