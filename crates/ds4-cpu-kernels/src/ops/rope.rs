//! Rotary position embedding, half-split form.

use crate::Cpu;

/// Rotates the pairs (`i`, `i + r / 2`) of the first `r` elements of each head and copies the rest.
///
/// `x` and `out` are [L, `heads`, `d`]; `cos` and `sin` [L, `r` / 2]: all heads of a token turn alike.
#[allow(clippy::too_many_arguments)] // each one is a fact of the rotation
pub fn rope(
    cpu: &Cpu,
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    heads: usize,
    d: usize,
    r: usize,
    out: &mut [f32],
) {
    for_each_head(cpu, x, [cos, sin], [heads, d, r], out, |x, cos, sin, out| {
        dispatch!(cpu, rope::head(x, cos, sin, out));
    });
}

/// Calls `rotate(x, cos, sin, out)` for every head of every token.
pub(super) fn for_each_head(
    cpu: &Cpu,
    x: &[f32],
    [cos, sin]: [&[f32]; 2],
    [heads, d, r]: [usize; 3],
    out: &mut [f32],
    rotate: impl Fn(&[f32], &[f32], &[f32], &mut [f32]) + Sync,
) {
    debug_assert_eq!(x.len(), out.len());
    debug_assert!(r <= d && r.is_multiple_of(2));
    debug_assert_eq!(cos.len() * 2 * heads * d, x.len() * r);
    debug_assert_eq!(sin.len(), cos.len());
    let (width, half) = (heads * d, r / 2);
    cpu.for_each_rows(out, width, 4 * width, |first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let token = first + i;
            let x = &x[token * width..(token + 1) * width];
            let angle = token * half..(token + 1) * half;
            for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
                rotate(x, &cos[angle.clone()], &sin[angle.clone()], out);
            }
        }
    });
}
