//! One row out of several gated streams.

use std::arch::x86_64::*;

use super::exp::sigmoid;
use super::lanes::{LANES, load_some, store_some};

/// `out` = mean over streams of sigmoid(`u`) * `h`; the streams of `u` and `h` are as wide as `out`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(u: &[f32], h: &[f32], out: &mut [f32]) {
    let d = out.len();
    let streams = u.len() / d;
    let factor = _mm256_set1_ps(1.0 / streams as f32);
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let mut acc = _mm256_setzero_ps();
        for s in 0..streams {
            let at = s * d + i * LANES..s * d + i * LANES + out.len();
            acc = _mm256_fmadd_ps(sigmoid(load_some(&u[at.clone()])), load_some(&h[at]), acc);
        }
        store_some(_mm256_mul_ps(acc, factor), out);
    }
}
