//! Matrix products in which every head has a matrix of its own, both ways round.
//!
//! The matrices lie in one weight, `stride` rows a head. A head uses `rows` of them from its row `first` on, so one weight
//! can hold two kinds of matrices side by side, as the expansion of latents into keys and values does.

use std::ops::Range;

use crate::disjoint::Parts;
use crate::rows::{Rows, padded, padded_width};
use crate::{Cpu, Matrix};

/// Tokens of a task, which share one decoding of the head's weights.
const TOKEN_BLOCK: usize = 128;

/// Weight rows that are decoded before they are added to every output row: 8 rows of 512 floats are 16 KiB.
const DECODED_ROWS: usize = 8;

/// Where the matrix of a head lies in the weight.
#[derive(Clone, Copy, Debug)]
pub struct HeadMatrices {
    /// Heads of the activations.
    pub heads: usize,
    /// Rows of the weight from one head to the next.
    pub stride: usize,
    /// First row of a head that is used.
    pub first: usize,
    /// Number of rows that are used.
    pub rows: usize,
}

impl HeadMatrices {
    /// The rows of the weight that head `head` uses.
    fn of(&self, head: usize) -> Range<usize> {
        let first = head * self.stride + self.first;
        first..first + self.rows
    }
}

/// `out[t, h]` = `x[t, h]` * (matrix of `h`)^T, with `x` [L, heads, k] and `out` [L, heads, rows]; `w` has rows of `k`.
///
/// A row has the bits that [`linear`](crate::linear) with the head's matrix gives.
pub fn head_linear(cpu: &Cpu, x: &[f32], w: Matrix<'_>, at: HeadMatrices, k: usize, out: &mut [f32]) {
    let HeadMatrices { heads, rows, .. } = at;
    debug_assert_eq!(x.len() * rows, out.len() * k);
    debug_assert!(w.is_valid(heads * at.stride, k));
    let tokens = x.len() / (heads * k);
    let x = padded(x, k);
    let blocks = tokens.div_ceil(TOKEN_BLOCK);
    let out = Parts::new(out);
    cpu.for_each_task(heads * blocks, tokens * heads * rows * k, &|task| {
        let (head, first) = (task / blocks, task % blocks * TOKEN_BLOCK);
        let count = TOKEN_BLOCK.min(tokens - first);
        let index: Vec<u32> = (first..first + count).map(|t| (t * heads + head) as u32).collect();
        let x = Rows::indexed(&x, padded_width(k), &index);
        // SAFETY: each task has its own tokens and head.
        let mut out = unsafe { out.columns((first * heads + head) * rows, count, heads * rows, rows) };
        dispatch!(cpu, linear::block(x, w, k, at.of(head), &mut out));
    });
}

/// `out[t, h]` = `x[t, h]` * matrix of `h`, with `x` [L, heads, rows] and `out` [L, heads, k]; `w` has rows of `k`.
///
/// The terms of an output are added in the order of the matrix's rows.
pub fn head_linear_transposed(
    cpu: &Cpu,
    x: &[f32],
    w: Matrix<'_>,
    at: HeadMatrices,
    k: usize,
    out: &mut [f32],
) {
    let HeadMatrices { heads, rows, .. } = at;
    debug_assert_eq!(x.len() * k, out.len() * rows);
    debug_assert!(w.is_valid(heads * at.stride, k));
    let tokens = x.len() / (heads * rows);
    let blocks = tokens.div_ceil(TOKEN_BLOCK);
    let out = Parts::new(out);
    cpu.for_each_task(heads * blocks, tokens * heads * rows * k, &|task| {
        let (head, first) = (task / blocks, task % blocks * TOKEN_BLOCK);
        let count = TOKEN_BLOCK.min(tokens - first);
        // SAFETY: each task has its own tokens and head.
        let mut out = unsafe { out.columns((first * heads + head) * k, count, heads * k, k) };
        for t in 0..count {
            out.row(t).fill(0.0);
        }
        let mut decoded = vec![0.0; DECODED_ROWS * k];
        for done in (0..rows).step_by(DECODED_ROWS) {
            let used = DECODED_ROWS.min(rows - done);
            for (row, decoded) in decoded.chunks_exact_mut(k).take(used).enumerate() {
                dispatch!(cpu, gather_rows::row(w, at.of(head).start + done + row, k, decoded));
            }
            for t in 0..count {
                let from = ((first + t) * heads + head) * rows + done;
                dispatch!(cpu, head_linear::add_rows(&x[from..from + used], &decoded, out.row(t)));
            }
        }
    });
}
