//! The weighted sum of the experts' outputs for each token.

use crate::Cpu;

/// `out[m]` = sum over slots `s` of `weights[m, s]` * `y[position[m, s]]`, added in slot order.
///
/// `y` is [P, n]; `position` and `weights` [M, `k`]; `out` [M, n].
pub fn combine_experts(
    cpu: &Cpu,
    y: &[f32],
    position: &[u32],
    weights: &[f32],
    k: usize,
    n: usize,
    out: &mut [f32],
) {
    debug_assert_eq!(position.len(), weights.len());
    debug_assert_eq!(out.len() * k, position.len() * n);
    cpu.for_each_rows(out, n, 2 * k * n, |first, out| {
        for (i, out) in out.chunks_exact_mut(n).enumerate() {
            out.fill(0.0);
            for slot in (first + i) * k..(first + i + 1) * k {
                let row = position[slot] as usize * n;
                dispatch!(cpu, stream_inject::row(out, &y[row..row + n], weights[slot]));
            }
        }
    });
}
