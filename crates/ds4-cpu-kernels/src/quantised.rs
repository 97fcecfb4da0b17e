//! Activation rows rounded to 8-bit integers, and the thread's memory for them.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};

/// Bytes that kernels multiply in one go, on a boundary of their own.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

/// Groups whose largest element is smaller are all zeros, since the reciprocal of their scale would be infinite.
pub(crate) const SMALLEST: f32 = 1e-30;

/// Largest rounded value; the smallest is its negative.
pub(crate) const LARGEST: f32 = 127.0;

/// Rows of rounded activations.
///
/// An element is `scale * q` with one scale a group. The order of the elements within a line is up to the instruction
/// set, whose kernels alone read and write them.
#[derive(Default)]
pub(crate) struct Quantised {
    /// [rows, lines].
    lines: Vec<Line>,
    /// [rows, groups].
    scales: Vec<f32>,
    /// Sum of the q of each group, [rows, groups]. Integers of this size are exact in float32.
    sums: Vec<f32>,
}

thread_local! {
    /// What the last call on this thread used, for the next to use again.
    static SCRATCH: RefCell<Quantised> = RefCell::default();
    /// What this thread has rounded for itself: for which call, and from which row on.
    static OWN: RefCell<((CallId, usize), Quantised)> = RefCell::default();
}

/// Tells calls whose threads round for themselves apart. None has the default.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallId(u64);

impl CallId {
    /// One that no call has had.
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(1 + LAST.fetch_add(1, Ordering::Relaxed))
    }
}

impl Quantised {
    /// Calls `work` with this thread's memory.
    pub(crate) fn with_scratch(work: impl FnOnce(&mut Self)) {
        let mut scratch = SCRATCH.take();
        work(&mut scratch);
        SCRATCH.replace(scratch);
    }

    /// Calls `work` with what `round` made on this thread for a part of a call, now or last.
    pub(crate) fn with_own(part: (CallId, usize), round: impl FnOnce(&mut Self), work: impl FnOnce(&Self)) {
        OWN.with_borrow_mut(|(last, own)| {
            if *last != part {
                // Not this part before all of it is there.
                *last = Default::default();
                round(own);
                *last = part;
            }
            work(own);
        });
    }

    /// Makes room for `rows` rows. The contents are arbitrary.
    pub(crate) fn resize(&mut self, rows: usize, lines: usize, groups: usize) {
        self.lines.resize(rows * lines, Line([0; 64]));
        self.scales.resize(rows * groups, 0.0);
        self.sums.resize(rows * groups, 0.0);
    }

    /// Lines, scales and sums, to be written.
    pub(crate) fn parts_mut(&mut self) -> (&mut [Line], &mut [f32], &mut [f32]) {
        (&mut self.lines, &mut self.scales, &mut self.sums)
    }

    /// The rows, of which there are `rows`.
    pub(crate) fn rows(&self, rows: usize) -> QuantisedRows<'_> {
        let (lines, groups) = (self.lines.len() / rows, self.scales.len() / rows);
        QuantisedRows { all: self, lines, groups, index: None, first: 0, len: rows }
    }
}

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct QuantisedRow<'a> {
    pub(crate) lines: &'a [Line],
    pub(crate) scales: &'a [f32],
    pub(crate) sums: &'a [f32],
}

#[cfg(target_arch = "x86_64")]
impl QuantisedRow<'_> {
    /// The scale and the sum of group `i`.
    #[inline]
    pub(crate) fn group(&self, i: usize) -> (f32, f32) {
        (self.scales[i], self.sums[i])
    }

    /// Groups `groups` of `size` elements, with lines of `per_line` elements. The first starts a line.
    #[inline]
    pub(crate) fn part(self, groups: Range<usize>, size: usize, per_line: usize) -> Self {
        debug_assert!((groups.start * size).is_multiple_of(per_line));
        let lines = groups.start * size / per_line..(groups.end * size).div_ceil(per_line);
        Self { lines: &self.lines[lines], scales: &self.scales[groups.clone()], sums: &self.sums[groups] }
    }
}

/// All rows, or those an index names.
#[derive(Clone, Copy)]
pub(crate) struct QuantisedRows<'a> {
    all: &'a Quantised,
    /// Lines of a row.
    lines: usize,
    /// Groups of a row.
    groups: usize,
    index: Option<&'a [u32]>,
    first: usize,
    len: usize,
}

impl<'a> QuantisedRows<'a> {
    /// The rows named by `index`, in that order.
    pub(crate) fn indexed(self, index: &'a [u32]) -> Self {
        Self { index: Some(index), first: 0, len: index.len(), ..self }
    }

    /// Some of these rows.
    pub(crate) fn range(self, range: Range<usize>) -> Self {
        assert!(range.end <= self.len);
        Self { first: self.first + range.start, len: range.len(), ..self }
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Row `i`.
    #[inline]
    pub(crate) fn row(self, i: usize) -> QuantisedRow<'a> {
        let i = self.first + i;
        let at = self.index.map_or(i, |index| index[i] as usize);
        QuantisedRow {
            lines: &self.all.lines[at * self.lines..(at + 1) * self.lines],
            scales: &self.all.scales[at * self.groups..(at + 1) * self.groups],
            sums: &self.all.sums[at * self.groups..(at + 1) * self.groups],
        }
    }
}
