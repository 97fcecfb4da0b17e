//! Rotary position embedding of the last elements of one head, neighbours paired.

use std::arch::x86_64::*;

use super::lanes::{LANES, load_some, store_some};

/// Rotates the last `2 * cos.len()` elements of `x` and copies what lies before them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn head(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let first = x.len() - 2 * cos.len();
    out[..first].copy_from_slice(&x[..first]);
    let angles = cos.chunks(LANES / 2).zip(sin.chunks(LANES / 2));
    for ((x, out), (cos, sin)) in x[first..].chunks(LANES).zip(out[first..].chunks_mut(LANES)).zip(angles) {
        let x = load_some(x);
        let swapped = _mm256_permute_ps::<0b10_11_00_01>(x);
        // Lanes alternate between a * cos - b * sin and b * cos + a * sin.
        let turned = _mm256_fmaddsub_ps(x, doubled(cos), _mm256_mul_ps(swapped, doubled(sin)));
        store_some(turned, out);
    }
}

/// Up to four angles, each twice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn doubled(x: &[f32]) -> __m256 {
    let twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    _mm256_permutevar8x32_ps(load_some(x), twice)
}
