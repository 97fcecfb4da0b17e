//! Hyper-connections: reading one row out of several gated streams.

use crate::Cpu;

/// `out[m]` = mean over streams of sigmoid(`u[m, s]`) * `h[m, s]`, with `u` and `h` [M, streams, D] and `out` [M, D].
pub fn stream_mix(cpu: &Cpu, u: &[f32], h: &[f32], streams: usize, d: usize, out: &mut [f32]) {
    debug_assert_eq!(u.len(), out.len() * streams);
    debug_assert_eq!(h.len(), u.len());
    let size = streams * d;
    cpu.for_each_rows(out, d, 16 * size, |first, out| {
        for (i, out) in out.chunks_exact_mut(d).enumerate() {
            let range = (first + i) * size..(first + i + 1) * size;
            dispatch!(cpu, stream_mix::row(&u[range.clone()], &h[range], out));
        }
    });
}
