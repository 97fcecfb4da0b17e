//! The weighted sum of the streams of one row.

/// `out` = sum of `weights[s]` * stream `s` of `x`.
pub(crate) fn row(x: &[f32], weights: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (x, weight) in x.chunks_exact(out.len()).zip(weights) {
        out.iter_mut().zip(x).for_each(|(out, x)| *out += weight * x);
    }
}
