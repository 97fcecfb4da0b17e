//! Between the storage formats and float32.

use ds4_dtype::{Floats, bf16, f16};

use crate::Cpu;

/// `out` = `x` widened to float32, exactly.
pub fn convert(cpu: &Cpu, x: Floats<'_>, out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len());
    cpu.for_each_rows(out, 1, 4, |first, out| {
        dispatch!(cpu, convert::widen(x.slice(first..first + out.len()), out));
    });
}

/// `out` = `x` rounded to the nearest float16, ties to even; too large values become infinite.
pub fn to_f16(cpu: &Cpu, x: &[f32], out: &mut [f16]) {
    debug_assert_eq!(x.len(), out.len());
    cpu.for_each_rows(out, 1, 4, |first, out| {
        dispatch!(cpu, convert::to_f16(&x[first..first + out.len()], out));
    });
}

/// `out` = `x` rounded to the nearest bfloat16, ties to even.
pub fn to_bf16(cpu: &Cpu, x: &[f32], out: &mut [bf16]) {
    debug_assert_eq!(x.len(), out.len());
    cpu.for_each_rows(out, 1, 4, |first, out| {
        dispatch!(cpu, convert::to_bf16(&x[first..first + out.len()], out));
    });
}
