//! Pooling of windows of rows, each channel weighted by a softmax over the window.

use crate::Cpu;

/// `out[b, c]` = sum over `p` of softmax over `p` of `gates[b, p, c]` * `values[b, p, c]`.
///
/// `values` and `gates` are [B, `window`, `width`], `out` is [B, `width`]. A gate of minus infinity leaves its row out.
pub fn gated_pool(cpu: &Cpu, values: &[f32], gates: &[f32], window: usize, width: usize, out: &mut [f32]) {
    debug_assert_eq!(values.len(), out.len() * window);
    debug_assert_eq!(gates.len(), values.len());
    let size = window * width;
    cpu.for_each_rows(out, width, 20 * size, |first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let range = (first + i) * size..(first + i + 1) * size;
            dispatch!(cpu, gated_pool::window(&values[range.clone()], &gates[range], out));
        }
    });
}
