//! The gated activation of feed-forward layers.

use crate::scalar::unary::silu;

/// `out` = silu(`gate`) * `up`.
pub(crate) fn elements(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = silu(*gate) * up;
    }
}
