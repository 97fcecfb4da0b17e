//! A value scaled by a learned gate between 0 and 1.

use crate::strided_rows::combine;
use crate::{Cpu, StridedRows};

/// `out` = `x` * sigmoid(`gate`), element by element.
pub fn sigmoid_gate(cpu: &Cpu, x: &[f32], gate: &[f32], out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len());
    debug_assert_eq!(gate.len(), out.len());
    combine(cpu, 16, [StridedRows::dense(x), StridedRows::dense(gate)], out, |x, gate, out| {
        dispatch!(cpu, sigmoid_gate::elements(x, gate, out));
    });
}
