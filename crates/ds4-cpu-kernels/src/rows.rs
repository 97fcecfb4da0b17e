//! The activation rows a matmul kernel reads: all rows of a matrix, or those an index names.

use std::ops::{Deref, Range};

use crate::scratch::Scratch;

/// Kernels read activations in steps of this many floats.
pub(crate) const LANES: usize = 8;

/// Rows of a row-major matrix whose width is a multiple of [`LANES`].
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    data: &'a [f32],
    width: usize,
    index: Option<&'a [u32]>,
    first: usize,
    len: usize,
}

impl<'a> Rows<'a> {
    /// All rows of `data`, whose width is [`padded_width`] of the K it stands for.
    pub(crate) fn all(data: &'a [f32], width: usize) -> Self {
        debug_assert!(width.is_multiple_of(LANES));
        Self { data, width, index: None, first: 0, len: data.len().checked_div(width).unwrap_or(0) }
    }

    /// The rows named by `index`, in that order.
    pub(crate) fn indexed(data: &'a [f32], width: usize, index: &'a [u32]) -> Self {
        Self { index: Some(index), len: index.len(), ..Self::all(data, width) }
    }

    /// Some of these rows.
    pub(crate) fn range(self, range: Range<usize>) -> Self {
        assert!(range.end <= self.len);
        Self { first: self.first + range.start, len: range.len(), ..self }
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Row `i`, padded with zeros.
    #[inline]
    pub(crate) fn row(self, i: usize) -> &'a [f32] {
        let i = self.first + i;
        let at = self.index.map_or(i, |index| index[i] as usize);
        &self.data[at * self.width..(at + 1) * self.width]
    }
}

/// `k` rounded up to whole steps.
pub(crate) fn padded_width(k: usize) -> usize {
    k.next_multiple_of(LANES)
}

/// Rows that are as wide as kernels want them, or a copy that is.
pub(crate) enum Padded<'a> {
    Own(&'a [f32]),
    Copy(Scratch),
}

impl Deref for Padded<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(x) => x,
            Self::Copy(x) => x,
        }
    }
}

/// The rows of `x` ([rows, k]) padded with zeros to [`padded_width`]; borrowed if nothing is to be added.
pub(crate) fn padded(x: &[f32], k: usize) -> Padded<'_> {
    let width = padded_width(k);
    if width == k {
        return Padded::Own(x);
    }
    let mut out = Scratch::filled(x.len() / k * width, 0.0);
    for (to, from) in out.chunks_exact_mut(width).zip(x.chunks_exact(k)) {
        to[..k].copy_from_slice(from);
    }
    Padded::Copy(out)
}
