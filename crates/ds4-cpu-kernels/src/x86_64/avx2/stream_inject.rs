//! A scaled row added to another.

use std::arch::x86_64::*;

use super::lanes::update_with;

/// `x` += `y` * `weight`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(x: &mut [f32], y: &[f32], weight: f32) {
    let weight = _mm256_set1_ps(weight);
    update_with(x, y, |x, y| _mm256_fmadd_ps(y, weight, x));
}
