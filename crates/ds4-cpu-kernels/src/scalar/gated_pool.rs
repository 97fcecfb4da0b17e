//! Pooling of a window of rows, each channel weighted by a softmax over the window.

/// `out[c]` = softmax-weighted mean of column `c`; `values` and `gates` have rows as wide as `out`.
pub(crate) fn window(values: &[f32], gates: &[f32], out: &mut [f32]) {
    let width = out.len();
    for (c, out) in out.iter_mut().enumerate() {
        let column = |x: &[f32]| x.iter().skip(c).step_by(width).copied().collect::<Vec<f32>>();
        let (values, gates) = (column(values), column(gates));
        let largest = gates.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (mut total, mut sum) = (0.0, 0.0);
        for (value, gate) in values.iter().zip(gates) {
            let weight = (gate - largest).exp();
            total += weight;
            sum += weight * value;
        }
        *out = sum / total;
    }
}
