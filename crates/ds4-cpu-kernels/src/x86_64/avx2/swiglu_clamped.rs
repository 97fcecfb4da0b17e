//! The gated activation of feed-forward layers that keep it in bounds.

use std::arch::x86_64::*;

use super::exp::silu;
use super::lanes::map_2;

/// `out` = silu(min(`gate`, `limit`)) * clamp(`up`, -`limit`, `limit`).
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn elements(gate: &[f32], up: &[f32], limit: f32, out: &mut [f32]) {
    let (most, least) = (_mm256_set1_ps(limit), _mm256_set1_ps(-limit));
    // The second operand of min and max is the result for NaN.
    map_2(gate, up, out, |gate, up| {
        let up = _mm256_max_ps(least, _mm256_min_ps(most, up));
        _mm256_mul_ps(silu(_mm256_min_ps(most, gate)), up)
    });
}
