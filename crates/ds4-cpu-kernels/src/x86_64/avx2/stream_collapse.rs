//! The weighted sum of the streams of one row.

use std::arch::x86_64::*;

use super::lanes::{LANES, load_some, store_some};

/// `out` = sum of `weights[s]` * stream `s` of `x`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(x: &[f32], weights: &[f32], out: &mut [f32]) {
    let d = out.len();
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let mut acc = _mm256_setzero_ps();
        for (s, weight) in weights.iter().enumerate() {
            let at = s * d + i * LANES;
            acc = _mm256_fmadd_ps(_mm256_set1_ps(*weight), load_some(&x[at..at + out.len()]), acc);
        }
        store_some(acc, out);
    }
}
