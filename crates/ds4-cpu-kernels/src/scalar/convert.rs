//! Between the storage formats and float32, by way of the `half` crate.

use ds4_dtype::{Floats, bf16, f16};

/// `out` = `x`, exactly.
pub(crate) fn widen(x: Floats<'_>, out: &mut [f32]) {
    match x {
        Floats::F32(x) => out.copy_from_slice(x),
        Floats::F16(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_f32()),
        Floats::Bf16(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_f32()),
    }
}

/// Nearest, ties to even.
pub(crate) fn to_f16(x: &[f32], out: &mut [f16]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = f16::from_f32(*x));
}

/// Nearest, ties to even.
pub(crate) fn to_bf16(x: &[f32], out: &mut [bf16]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = bf16::from_f32(*x));
}
