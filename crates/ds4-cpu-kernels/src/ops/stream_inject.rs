//! Hyper-connections: adding a layer's output to each stream with its own weight.

use crate::Cpu;

/// `x[m, s]` += `y[m]` * `inject[m, s]`, with `x` [M, streams, D], `y` [M, D] and `inject` [M, streams].
pub fn stream_inject(cpu: &Cpu, x: &mut [f32], y: &[f32], inject: &[f32], streams: usize, d: usize) {
    debug_assert_eq!(x.len(), y.len() * streams);
    debug_assert_eq!(inject.len() * d, x.len());
    cpu.for_each_rows(x, streams * d, 4 * streams * d, |first, x| {
        for (i, x) in x.chunks_exact_mut(d).enumerate() {
            let m = first + i / streams;
            dispatch!(cpu, stream_inject::row(x, &y[m * d..(m + 1) * d], inject[first * streams + i]));
        }
    });
}
