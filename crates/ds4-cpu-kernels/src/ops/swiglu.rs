//! The gated activation of feed-forward layers and experts.

use crate::strided_rows::combine;
use crate::{Cpu, StridedRows};

/// `out` = silu(`gate`) * `up`, element by element.
pub fn swiglu(cpu: &Cpu, gate: StridedRows<'_>, up: StridedRows<'_>, out: &mut [f32]) {
    combine(cpu, 16, [gate, up], out, |gate, up, out| {
        dispatch!(cpu, swiglu::elements(gate, up, out));
    });
}
