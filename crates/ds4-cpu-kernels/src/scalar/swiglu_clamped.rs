//! The gated activation of feed-forward layers that keep it in bounds.

use crate::scalar::unary::silu;

/// `out` = silu(min(`gate`, `limit`)) * clamp(`up`, -`limit`, `limit`).
pub(crate) fn elements(gate: &[f32], up: &[f32], limit: f32, out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        let gate = if gate > limit { limit } else { gate };
        *out = silu(gate) * up.clamp(-limit, limit);
    }
}
