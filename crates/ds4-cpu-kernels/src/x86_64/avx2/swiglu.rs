//! The gated activation of feed-forward layers.

use std::arch::x86_64::*;

use super::exp::silu;
use super::lanes::map_2;

/// `out` = silu(`gate`) * `up`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn elements(gate: &[f32], up: &[f32], out: &mut [f32]) {
    map_2(gate, up, out, |gate, up| _mm256_mul_ps(silu(gate), up));
}
