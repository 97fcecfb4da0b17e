//! A value scaled by a gate.

use std::arch::x86_64::*;

use super::exp::sigmoid;
use super::lanes::map_2;

/// `out` = `x` * sigmoid(`gate`).
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn elements(x: &[f32], gate: &[f32], out: &mut [f32]) {
    map_2(x, gate, out, |x, gate| _mm256_mul_ps(x, sigmoid(gate)));
}
