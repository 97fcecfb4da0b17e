//! Rotary position embedding of the last elements, neighbours paired.

use super::rope::for_each_head;
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
    for_each_head(cpu, x, [cos, sin], [heads, d, r], out, |x, cos, sin, out| {
        dispatch!(cpu, rope_pairs::head(x, cos, sin, out));
    });
}
