//! Rotary position embedding of the last elements of one head, neighbours paired.

/// Rotates the last `2 * cos.len()` elements of `x` and copies what lies before them.
pub(crate) fn head(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let first = x.len() - 2 * cos.len();
    out[..first].copy_from_slice(&x[..first]);
    let pairs = x[first..].as_chunks::<2>().0.iter().zip(out[first..].as_chunks_mut::<2>().0);
    for (([a, b], out), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
        *out = [a * cos - b * sin, b * cos + a * sin];
    }
}
