//! A value scaled by a learned gate between 0 and 1.

use crate::Cpu;

/// `out` = `x` * sigmoid(`gate`), element by element.
pub fn sigmoid_gate(cpu: &Cpu, x: &[f32], gate: &[f32], out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len());
    debug_assert_eq!(gate.len(), out.len());
    cpu.for_each_rows(out, 1, 16, |first, out| {
        let range = first..first + out.len();
        dispatch!(cpu, sigmoid_gate::elements(&x[range.clone()], &gate[range], out));
    });
}
