//! Hyper-connections: one row as the weighted sum of its streams.

use crate::Cpu;

/// `out[m]` = sum over streams of `weights[m, s]` * `x[m, s]`, with `x` [M, streams, D] and `out` [M, D].
///
/// Rows of `weights` are `stride` apart and begin with the weights; what follows them is not read.
pub fn stream_collapse(
    cpu: &Cpu,
    x: &[f32],
    weights: &[f32],
    stride: usize,
    streams: usize,
    d: usize,
    out: &mut [f32],
) {
    debug_assert_eq!(x.len(), out.len() * streams);
    debug_assert!(stride >= streams);
    debug_assert_eq!(weights.len() * d, out.len() * stride);
    let size = streams * d;
    cpu.for_each_rows(out, d, 4 * size, |first, out| {
        for (i, out) in out.chunks_exact_mut(d).enumerate() {
            let m = first + i;
            let weights = &weights[m * stride..m * stride + streams];
            dispatch!(cpu, stream_collapse::row(&x[m * size..(m + 1) * size], weights, out));
        }
    });
}
