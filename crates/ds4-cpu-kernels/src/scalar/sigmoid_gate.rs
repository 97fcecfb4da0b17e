//! A value scaled by a gate.

use crate::scalar::unary::sigmoid;

/// `out` = `x` * sigmoid(`gate`).
pub(crate) fn elements(x: &[f32], gate: &[f32], out: &mut [f32]) {
    for ((out, x), gate) in out.iter_mut().zip(x).zip(gate) {
        *out = x * sigmoid(*gate);
    }
}
