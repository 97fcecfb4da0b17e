//! Embedding lookup: rows of a table, widened or dequantised.

use crate::{Cpu, Matrix};

/// `out[i]` = row `ids[i]` of `table`, as float32. `table` has rows of `k` elements, `out` is [L, k].
pub fn gather_rows(cpu: &Cpu, table: Matrix<'_>, ids: &[u32], k: usize, out: &mut [f32]) {
    debug_assert_eq!(out.len(), ids.len() * k);
    cpu.for_each_rows(out, k, 4 * k, |first, out| {
        for (out, &id) in out.chunks_exact_mut(k).zip(&ids[first..]) {
            dispatch!(cpu, gather_rows::row(table, id as usize, k, out));
        }
    });
}
