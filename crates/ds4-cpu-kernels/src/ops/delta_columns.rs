//! How the delta rules are split: a task has some columns of one head's state of one sequence.

use std::ops::Range;

use super::sequences::all_tokens;
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

/// The tokens of one sequence in a call, and its state.
pub struct DeltaSequence<'a> {
    tokens: Range<usize>,
    before: Option<&'a [f32]>,
    state: Parts<'a, f32>,
}

impl<'a> DeltaSequence<'a> {
    /// `tokens` of the call go on from `state`, [heads, dk, dv], and change it: or from `before`, and `state` is written.
    pub fn new(tokens: Range<usize>, before: Option<&'a [f32]>, state: &'a mut [f32]) -> Self {
        debug_assert!(before.is_none_or(|before| before.len() == state.len()));
        Self { tokens, before, state: Parts::new(state) }
    }

    /// Where the state before the first token stands.
    fn source(&self) -> Source {
        Source(self.before.map_or(self.state.start(), <[f32]>::as_ptr))
    }

    /// A new place of its own is not in the cache, and a large state does not stay there.
    fn streams(&self) -> bool {
        self.before.is_some() && self.state.len() >= streaming::LARGE
    }
}

/// The sizes of a state.
#[derive(Clone, Copy)]
pub(super) struct StateSizes {
    pub(super) heads: usize,
    pub(super) dk: usize,
    pub(super) dv: usize,
}

/// Calls `task(tokens, block, state, out)` for each block of columns of each sequence; `out` has the rows of its tokens only.
///
/// `out` is [tokens, heads, dv]; the sequences' tokens follow one another. All tokens stream over a block, which fits into the
/// L1 cache. A state that comes from another place is brought block by block, by the threads that need it.
pub(super) fn for_each_column_block(
    cpu: &Cpu,
    sizes: StateSizes,
    sequences: &mut [DeltaSequence<'_>],
    out: &mut [f32],
    task: impl Fn(Range<usize>, DeltaBlock, &mut StateBlock<'_>, &mut Columns<'_, f32>) + Sync,
) {
    let StateSizes { heads, dk, dv } = sizes;
    let mut longest = 1;
    for sequence in &*sequences {
        assert_eq!(sequence.state.len(), heads * dk * dv, "the size of a state");
        longest = sequence.tokens.len().max(longest);
    }
    let tokens = all_tokens(sequences.iter().map(|sequence| &sequence.tokens));
    assert_eq!(out.len(), tokens * heads * dv, "the rows of all sequences");
    let blocks = dv.div_ceil(COLUMN_BLOCK);
    let (units, all) = (heads * blocks, sequences.len() * heads * blocks);
    if all == 0 {
        return;
    }
    // So few units in a task that even those of the longest sequence are spread.
    let size = cpu.units_per_task((tokens * units).div_ceil(longest), 3 * longest * dk * COLUMN_BLOCK);
    let (sequences, out) = (&*sequences, Parts::new(out));
    cpu.for_each_chunk(all, size, |range| {
        for unit in range.clone() {
            let sequence = &sequences[unit / units];
            let place = |unit: usize| (unit % units / blocks, unit % blocks * COLUMN_BLOCK);
            let (head, first) = place(unit);
            let (next_head, next_first) = place(unit + 1);
            let next_sequence = &sequences[(unit + 1).min(all - 1) / units];
            let next = next_sequence.source().after(next_head * dk * dv + next_first);
            let width = COLUMN_BLOCK.min(dv - first);
            let tokens = sequence.tokens.clone();
            // SAFETY: each task has its own sequence, head and columns, of the state and of the output.
            let (columns, mut out) = unsafe {
                (
                    sequence.state.columns(head * dk * dv + first, dk, dv, width),
                    out.columns((tokens.start * heads + head) * dv + first, tokens.len(), heads * dv, width),
                )
            };
            let before =
                |i: usize| sequence.before.map(|before| &before[(head * dk + i) * dv + first..][..width]);
            let block = |rows| DeltaBlock { head, first, next, stride: dv, rows };
            if tokens.len() < TOKENS_WORTH_A_COPY {
                let mut state = StateBlock::in_place(columns, before);
                task(tokens, block(0), &mut state, &mut out);
            } else {
                StateBlock::with_copy(columns, sequence.streams(), before, |state| {
                    task(tokens, block(dk), state, &mut out);
                });
            }
        }
        if sequences[range.start / units..range.end.div_ceil(units)].iter().any(DeltaSequence::streams) {
            streaming::finish();
        }
    });
}

/// The columns of a block while tokens stream over them.
pub(crate) struct StateBlock<'a> {
    /// Where each token finds them, and leaves them for the next.
    columns: Columns<'a, f32>,
    /// Where the last token leaves them if that is another place, and whether past the cache.
    last: Option<(Columns<'a, f32>, bool)>,
}

impl<'a> StateBlock<'a> {
    /// `columns`, after their rows were brought from where `before` says they were.
    fn in_place<'b>(mut columns: Columns<'a, f32>, before: impl Fn(usize) -> Option<&'b [f32]>) -> Self {
        for i in 0..columns.rows() {
            before(i).into_iter().for_each(|row| columns.row(i).copy_from_slice(row));
        }
        Self { columns, last: None }
    }

    /// Calls `task` with a copy of the rows in which they stand together; the last token leaves them in `last`.
    fn with_copy<'b>(
        mut last: Columns<'a, f32>,
        streams: bool,
        before: impl Fn(usize) -> Option<&'b [f32]>,
        task: impl FnOnce(&mut StateBlock<'_>),
    ) {
        let (rows, width) = (last.rows(), last.width());
        let mut copy = Scratch::new(rows * width);
        for (i, row) in copy.chunks_exact_mut(width).enumerate() {
            row.copy_from_slice(before(i).unwrap_or_else(|| last.row(i)));
        }
        let together = Parts::new(&mut copy);
        // SAFETY: the only part.
        let columns = unsafe { together.columns(0, rows, width, width) };
        task(&mut StateBlock { columns, last: Some((last, streams)) });
    }

    /// Number of columns.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn width(&self) -> usize {
        self.columns.width()
    }

    /// Row `i`, as the token before left it.
    #[inline]
    pub(crate) fn row(&mut self, i: usize) -> &mut [f32] {
        self.columns.row(i)
    }

    /// Whether the last token leaves the rows past the cache: `None` if in their place.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn last(&self) -> Option<bool> {
        self.last.as_ref().map(|(_, streams)| *streams)
    }

    /// Where the last token leaves row `i`.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn last_row(&mut self, i: usize) -> &mut [f32] {
        self.last.as_mut().map_or(&mut self.columns, |(columns, _)| columns).row(i)
    }

    /// Puts all rows where the last token leaves them.
    pub(crate) fn put_back(&mut self) {
        let Some((last, streams)) = &mut self.last else { return };
        for i in 0..self.columns.rows() {
            let (from, to) = (self.columns.row(i), last.row(i));
            if *streams { streaming::copy(from, to) } else { to.copy_from_slice(from) }
        }
    }
}
