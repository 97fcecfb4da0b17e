//! Root-mean-square normalisation.

use crate::scalar::linear::dot;

/// Rows of `width` elements, normalised by groups; `weight` is the effective factor of each column.
pub(crate) fn rows(x: &[f32], weight: Option<&[f32]>, width: usize, group: usize, eps: f32, out: &mut [f32]) {
    for (i, (x, out)) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate() {
        let scale = 1.0 / (dot(x, x) / group as f32 + eps).sqrt();
        let first = i * group % width;
        for (c, (out, x)) in out.iter_mut().zip(x).enumerate() {
            *out = x * scale * weight.map_or(1.0, |weight| weight[first + c]);
        }
    }
}
