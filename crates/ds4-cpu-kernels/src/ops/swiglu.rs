//! The gated activation of feed-forward layers and experts.

use crate::Cpu;

/// `out` = silu(`gate`) * `up`, element by element.
pub fn swiglu(cpu: &Cpu, gate: &[f32], up: &[f32], out: &mut [f32]) {
    debug_assert_eq!(gate.len(), out.len());
    debug_assert_eq!(up.len(), out.len());
    cpu.for_each_rows(out, 1, 16, |first, out| {
        let range = first..first + out.len();
        dispatch!(cpu, swiglu::elements(&gate[range.clone()], &up[range], out));
    });
}
