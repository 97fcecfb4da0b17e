//! Rows scaled to unit length.

use crate::scalar::linear::dot;

/// `x * scale / sqrt(sum(x^2) + eps)` for rows of `d` elements.
pub(crate) fn rows(x: &[f32], d: usize, eps: f32, scale: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
        let factor = scale / (dot(x, x) + eps).sqrt();
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor);
    }
}
