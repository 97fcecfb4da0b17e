//! Rotary position embedding of one head.

use std::arch::x86_64::*;

use super::lanes::{LANES, load_some, store_some};

/// Rotates the pairs (`i`, `i + cos.len()`) of `x` and copies what lies behind them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn head(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let half = cos.len();
    let (a, b) = x[..2 * half].split_at(half);
    let (out, rest) = out.split_at_mut(2 * half);
    let (out_a, out_b) = out.split_at_mut(half);
    let parts = a.chunks(LANES).zip(b.chunks(LANES)).zip(cos.chunks(LANES)).zip(sin.chunks(LANES));
    for ((((a, b), cos), sin), (out_a, out_b)) in
        parts.zip(out_a.chunks_mut(LANES).zip(out_b.chunks_mut(LANES)))
    {
        let (a, b, cos, sin) = (load_some(a), load_some(b), load_some(cos), load_some(sin));
        store_some(_mm256_fmsub_ps(a, cos, _mm256_mul_ps(b, sin)), out_a);
        store_some(_mm256_fmadd_ps(b, cos, _mm256_mul_ps(a, sin)), out_b);
    }
    rest.copy_from_slice(&x[2 * half..]);
}
