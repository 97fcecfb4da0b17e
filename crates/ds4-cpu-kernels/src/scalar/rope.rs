//! Rotary position embedding of one head.

/// Rotates the pairs (`i`, `i + cos.len()`) of `x` and copies what lies behind them.
pub(crate) fn head(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let half = cos.len();
    for i in 0..half {
        let (a, b) = (x[i], x[i + half]);
        out[i] = a * cos[i] - b * sin[i];
        out[i + half] = b * cos[i] + a * sin[i];
    }
    out[2 * half..].copy_from_slice(&x[2 * half..]);
}
