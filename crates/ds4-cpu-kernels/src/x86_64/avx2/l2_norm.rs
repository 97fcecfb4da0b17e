//! Rows scaled to unit length.

use std::arch::x86_64::*;

use super::lanes::{fold, map, sum};

/// `x * scale / sqrt(sum(x^2) + eps)` for rows of `d` elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows(x: &[f32], d: usize, eps: f32, scale: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
        let squares = sum(fold(x, |acc, x| _mm256_fmadd_ps(x, x, acc)));
        let factor = _mm256_set1_ps(scale / (squares + eps).sqrt());
        map(x, out, |x| _mm256_mul_ps(x, factor));
    }
}
