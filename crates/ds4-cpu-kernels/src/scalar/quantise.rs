//! Rounding activations to 8-bit integers.

use crate::quantised::{LARGEST, Line, SMALLEST};

/// Lines of a row of `k` elements.
pub(crate) fn lines(k: usize, _group: usize, _bits: u32) -> usize {
    k.div_ceil(64)
}

/// Rounds a row by groups of `group`: elements in their own order, then zeros.
pub(crate) fn row(
    x: &[f32],
    group: usize,
    _bits: u32,
    lines: &mut [Line],
    scales: &mut [f32],
    sums: &mut [f32],
) {
    lines.fill(Line([0; 64]));
    for (g, x) in x.chunks_exact(group).enumerate() {
        let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        // Zero, but NaN if an element is NaN or infinite.
        let poison: f32 = x.iter().map(|x| x * 0.0).sum();
        let factor = if largest < SMALLEST { 0.0 } else { LARGEST / largest };
        let mut sum = 0;
        for (i, x) in x.iter().enumerate() {
            let q = (x * factor).round_ties_even() as i8;
            let at = g * group + i;
            lines[at / 64].0[at % 64] = q as u8;
            sum += i32::from(q);
        }
        scales[g] = if largest < SMALLEST { 0.0 } else { largest / LARGEST } + poison;
        sums[g] = sum as f32;
    }
}
