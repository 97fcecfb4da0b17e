//! Rotary position embedding of the last elements, neighbours paired.

use crate::Cpu;

/// Rotates the pairs (`2i`, `2i + 1`) of the last `r` elements of each head and copies the rest.
///
/// `x` and `out` are [L, `heads`, `d`]; `cos` and `sin` [L, `r` / 2]: all heads of a token turn alike.
#[allow(clippy::too_many_arguments)] // each one is a fact of the rotation
pub fn rope_pairs(
    cpu: &Cpu,
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    heads: usize,
    d: usize,
    r: usize,
    out: &mut [f32],
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
                dispatch!(cpu, rope_pairs::head(x, &cos[angle.clone()], &sin[angle.clone()], out));
            }
        }
    });
}
