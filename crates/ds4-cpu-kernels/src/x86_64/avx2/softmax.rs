//! Softmax of a row.

use std::arch::x86_64::*;

use super::exp::exp;
use super::lanes::{fold, map, sum, update};
use super::reduce::largest;

/// `out` = softmax(`x`).
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(x: &[f32], out: &mut [f32]) {
    let largest = _mm256_set1_ps(largest(x));
    map(x, out, |x| exp(_mm256_sub_ps(x, largest)));
    let factor = _mm256_set1_ps(1.0 / sum(fold(out, |acc, x| _mm256_add_ps(acc, x))));
    update(out, |x| _mm256_mul_ps(x, factor));
}
