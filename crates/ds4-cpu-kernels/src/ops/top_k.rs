//! The largest elements of rows. Exact and the same on every instruction set, so there is one kernel.

use crate::{Cpu, scalar};

/// `out[r]` = indices of the `k` largest elements of row `x[r]`, largest first; rows have `width` >= `k` elements.
///
/// Of equal values the lower index comes first. NaN counts as less than everything else.
pub fn top_k(cpu: &Cpu, x: &[f32], width: usize, k: usize, out: &mut [u32]) {
    debug_assert!(k <= width);
    debug_assert_eq!(out.len() * width, x.len() * k);
    cpu.for_each_rows(out, k, 40 * width, |first, out| {
        for (x, out) in x[first * width..].chunks_exact(width).zip(out.chunks_exact_mut(k)) {
            scalar::top_k::row(x, out);
        }
    });
}

/// `out[r]` = index of the first largest element of row `x[r]`, with `x` [R, width] and `out` \[R\].
pub fn argmax(cpu: &Cpu, x: &[f32], width: usize, out: &mut [u32]) {
    debug_assert_eq!(out.len() * width, x.len());
    cpu.for_each_rows(out, 1, 4 * width, |first, out| {
        for (x, out) in x[first * width..].chunks_exact(width).zip(out) {
            *out = scalar::top_k::first_maximum(x);
        }
    });
}
