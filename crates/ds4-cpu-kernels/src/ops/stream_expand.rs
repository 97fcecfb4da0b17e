//! Hyper-connections: streams mixed among each other, with a block's output added to each.

use crate::Cpu;

/// `out[m, k]` = post`[k]` * `y[m]` + sum over j of comb[j, k] * `x[m, j]`, with `x` and `out` [M, S, D] and `y` [M, D].
///
/// `coefficients` [M, (2 + S) * S] are those of [`manifold_coefficients`](crate::manifold_coefficients): pre, post, comb.
pub fn stream_expand(
    cpu: &Cpu,
    x: &[f32],
    y: &[f32],
    coefficients: &[f32],
    streams: usize,
    d: usize,
    out: &mut [f32],
) {
    let width = (2 + streams) * streams;
    debug_assert_eq!(x.len(), out.len());
    debug_assert_eq!(y.len() * streams, out.len());
    debug_assert_eq!(coefficients.len() * d, y.len() * width);
    let size = streams * d;
    cpu.for_each_rows(out, size, 4 * streams * size, |first, out| {
        for (i, out) in out.chunks_exact_mut(size).enumerate() {
            let m = first + i;
            let (post, comb) = coefficients[m * width + streams..(m + 1) * width].split_at(streams);
            let x = &x[m * size..(m + 1) * size];
            dispatch!(cpu, stream_expand::row(x, &y[m * d..(m + 1) * d], post, comb, out));
        }
    });
}
