//! The streams of one row, mixed and added to.

use std::arch::x86_64::*;

use super::lanes::{LANES, load_some, store_some};

/// Stream k of `out` = `post[k]` * `y` + sum over j of `comb[j, k]` * stream j of `x`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(x: &[f32], y: &[f32], post: &[f32], comb: &[f32], out: &mut [f32]) {
    let (d, streams) = (y.len(), post.len());
    for first in (0..d).step_by(LANES) {
        let len = LANES.min(d - first);
        let y = load_some(&y[first..first + len]);
        for k in 0..streams {
            let mut acc = _mm256_mul_ps(_mm256_set1_ps(post[k]), y);
            for j in 0..streams {
                let x = load_some(&x[j * d + first..j * d + first + len]);
                acc = _mm256_fmadd_ps(_mm256_set1_ps(comb[j * streams + k]), x, acc);
            }
            store_some(acc, &mut out[k * d + first..k * d + first + len]);
        }
    }
}
