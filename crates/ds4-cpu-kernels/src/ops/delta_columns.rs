//! How the delta rules are split: a task has some columns of one head's state.

use crate::Cpu;
use crate::disjoint::{Columns, Parts};
use crate::prefetch::{LINE, Source};
use crate::scratch::Scratch;
use crate::streaming;

/// Columns of a head's state that a task holds: 128 rows of 32 floats are 16 KiB.
const COLUMN_BLOCK: usize = 32;

/// Lines of the cache that a row of such a block takes.
const LINES: usize = COLUMN_BLOCK * size_of::<f32>() / LINE;

/// Tokens from which on the columns are copied together and back. Where they stand, a state's rows are so far apart that
/// they share few places of the L1 cache and push each other out before the next token.
const TOKENS_WORTH_A_COPY: usize = 3;

/// Some columns of a head's state, and what memory may bring while tokens stream over them.
#[derive(Clone, Copy)]
pub(crate) struct DeltaBlock {
    pub(crate) head: usize,
    /// First of the columns in the head.
    pub(crate) first: usize,
    /// First row of the block that comes next, how far its rows are apart, and how many there are to be brought.
    next: Source,
    stride: usize,
    rows: usize,
}

impl DeltaBlock {
    /// Brings a part of the next block. Two tokens that call it for each of their rows `i` bring all of it: evenly, since
    /// memory takes no more at once.
    #[inline]
    pub(crate) fn prefetch(&self, token: usize, i: usize) {
        let line = token * self.rows + i;
        if line < LINES * self.rows {
            self.next.prefetch(line / LINES * self.stride + line % LINES * COLUMN_BLOCK / LINES);
        }
    }
}

/// The sizes of a call, and what it continues.
pub(super) struct DeltaCall<'a> {
    pub(super) tokens: usize,
    pub(super) heads: usize,
    pub(super) dk: usize,
    pub(super) dv: usize,
    /// The state before the first token, if it is not in the place of the state after the last.
    pub(super) before: Option<&'a [f32]>,
}

/// Calls `task(block, state, out)` for each block of columns.
///
/// `state` is [heads, dk, dv] and `out` [tokens, heads, dv]. All tokens stream over a block, which fits into the L1 cache.
/// A state that comes from another place is brought block by block, by the threads that need it.
pub(super) fn for_each_column_block(
    cpu: &Cpu,
    call: &DeltaCall<'_>,
    state: &mut [f32],
    out: &mut [f32],
    task: impl Fn(DeltaBlock, &mut Columns<'_, f32>, &mut Columns<'_, f32>) + Sync,
) {
    let DeltaCall { tokens, heads, dk, dv, before } = *call;
    debug_assert_eq!(state.len(), heads * dk * dv);
    debug_assert!(before.is_none_or(|before| before.len() == state.len()));
    debug_assert_eq!(out.len(), tokens * heads * dv);
    let blocks = dv.div_ceil(COLUMN_BLOCK);
    let place = |index: usize| (index / blocks, index % blocks * COLUMN_BLOCK);
    // A new place of its own is not in the cache, and a large state does not stay there.
    let streams = before.is_some() && state.len() >= streaming::LARGE;
    let source = Source(before.unwrap_or(state).as_ptr());
    let (state, out) = (Parts::new(state), Parts::new(out));
    cpu.for_each_range(heads * blocks, 3 * tokens * dk * COLUMN_BLOCK, |range| {
        for index in range {
            let (head, first) = place(index);
            let width = COLUMN_BLOCK.min(dv - first);
            // SAFETY: each task has its own head and columns, of the state and of the output.
            let (mut state, mut out) = unsafe {
                (
                    state.columns(head * dk * dv + first, dk, dv, width),
                    out.columns(head * dv + first, tokens, heads * dv, width),
                )
            };
            let row_before = |i: usize| before.map(|before| &before[(head * dk + i) * dv + first..][..width]);
            let (next_head, next_first) = place(index + 1);
            let next = source.after(next_head * dk * dv + next_first);
            let block = |rows| DeltaBlock { head, first, next, stride: dv, rows };
            if tokens < TOKENS_WORTH_A_COPY {
                for i in 0..dk {
                    row_before(i).into_iter().for_each(|row| state.row(i).copy_from_slice(row));
                }
                task(block(0), &mut state, &mut out);
                continue;
            }
            let mut copy = Scratch::new(dk * width);
            for (i, row) in copy.chunks_exact_mut(width).enumerate() {
                row.copy_from_slice(row_before(i).unwrap_or_else(|| state.row(i)));
            }
            let together = Parts::new(&mut copy);
            // SAFETY: the only part.
            task(block(dk), &mut unsafe { together.columns(0, dk, width, width) }, &mut out);
            for (i, row) in copy.chunks_exact(width).enumerate() {
                if streams { streaming::copy(row, state.row(i)) } else { state.row(i).copy_from_slice(row) }
            }
        }
        if streams {
            streaming::finish();
        }
    });
}
