//! Rows that lie apart, such as some columns of a wider matrix, and operations that combine two of them.

use crate::Cpu;
use crate::disjoint::Parts;

/// A matrix whose rows begin `stride` elements after one another.
#[derive(Clone, Copy, Debug)]
pub struct StridedRows<'a> {
    values: &'a [f32],
    width: usize,
    stride: usize,
}

impl<'a> StridedRows<'a> {
    /// Rows of `width` elements, at least 1. The last ends where `values` ends, or before.
    pub fn new(values: &'a [f32], width: usize, stride: usize) -> Self {
        Self { values, width, stride }
    }

    /// Rows one after the other. Where they begin and end does not matter to operations on elements.
    pub fn dense(values: &'a [f32]) -> Self {
        Self { values, width: values.len().max(1), stride: values.len() }
    }

    /// Whether the rows have `len` elements in all.
    fn hold(self, len: usize) -> bool {
        let rows = len / self.width;
        len.is_multiple_of(self.width)
            && rows.checked_sub(1).is_none_or(|last| last * self.stride + self.width <= self.values.len())
    }

    /// Elements from element `first` of all on, as far as they lie together and at most `most`.
    #[inline]
    fn run(self, first: usize, most: usize) -> &'a [f32] {
        let (row, column) = (first / self.width, first % self.width);
        &self.values[row * self.stride + column..][..most.min(self.width - column)]
    }
}

/// Calls `task` with runs of elements of `a` and `b` and the place for their results in `out`, over the pool if that pays.
pub(crate) fn combine(
    cpu: &Cpu,
    cost: usize,
    [a, b]: [StridedRows<'_>; 2],
    out: &mut [f32],
    task: impl Fn(&[f32], &[f32], &mut [f32]) + Sync,
) {
    debug_assert!(a.hold(out.len()) && b.hold(out.len()));
    let (len, out) = (out.len(), Parts::new(out));
    cpu.for_each_range(len, cost, |range| {
        let mut at = range.start;
        while at < range.end {
            let a = a.run(at, range.end - at);
            let b = b.run(at, a.len());
            let end = at + b.len();
            // SAFETY: the ranges that tasks are given do not overlap, and neither do the runs of one.
            task(&a[..b.len()], b, unsafe { out.range(at..end) });
            at = end;
        }
    });
}
