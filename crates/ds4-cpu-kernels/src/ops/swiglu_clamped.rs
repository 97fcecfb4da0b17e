//! The gated activation of feed-forward layers that keep it in bounds.

use crate::Cpu;

/// `out` = silu(min(`gate`, `limit`)) * clamp(`up`, -`limit`, `limit`), element by element. NaN stays NaN.
pub fn swiglu_clamped(cpu: &Cpu, gate: &[f32], up: &[f32], limit: f32, out: &mut [f32]) {
    debug_assert_eq!(gate.len(), out.len());
    debug_assert_eq!(up.len(), out.len());
    cpu.for_each_rows(out, 1, 16, |first, out| {
        let range = first..first + out.len();
        dispatch!(cpu, swiglu_clamped::elements(&gate[range.clone()], &up[range], limit, out));
    });
}
