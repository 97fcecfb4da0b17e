//! Softmax of a row.

/// `out` = softmax(`x`).
pub(crate) fn row(x: &[f32], out: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for (out, x) in out.iter_mut().zip(x) {
        *out = (x - max).exp();
        sum += *out;
    }
    let factor = 1.0 / sum;
    out.iter_mut().for_each(|out| *out *= factor);
}
