//! Rows scaled to unit length, as the delta nets want their queries and keys.

use crate::Cpu;

/// `x * scale / sqrt(sum(x^2) + eps)` for each row of `d` elements.
pub fn l2_norm(cpu: &Cpu, x: &[f32], d: usize, eps: f32, scale: f32, out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len());
    cpu.for_each_rows(out, d, 4 * d, |first, out| {
        dispatch!(cpu, l2_norm::rows(&x[first * d..first * d + out.len()], d, eps, scale, out));
    });
}
