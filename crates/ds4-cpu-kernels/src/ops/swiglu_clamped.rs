//! The gated activation of feed-forward layers that keep it in bounds.

use crate::strided_rows::combine;
use crate::{Cpu, StridedRows};

/// `out` = silu(min(`gate`, `limit`)) * clamp(`up`, -`limit`, `limit`), element by element. NaN stays NaN.
pub fn swiglu_clamped(cpu: &Cpu, gate: StridedRows<'_>, up: StridedRows<'_>, limit: f32, out: &mut [f32]) {
    combine(cpu, 16, [gate, up], out, |gate, up, out| {
        dispatch!(cpu, swiglu_clamped::elements(gate, up, limit, out));
    });
}
