//! Softmax of rows.

use crate::Cpu;

/// `out[r]` = softmax of row `x[r]`, rows of `width` elements. A row of only minus infinity gives NaN.
pub fn softmax(cpu: &Cpu, x: &[f32], width: usize, out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len());
    cpu.for_each_rows(out, width, 16 * width, |first, out| {
        let x = &x[first * width..first * width + out.len()];
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            dispatch!(cpu, softmax::row(x, out));
        }
    });
}
