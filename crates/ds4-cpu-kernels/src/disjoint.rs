//! Handing parts of one output to several tasks.
//!
//! The borrow checker can split a slice into consecutive pieces, but not into columns of a matrix, and not from inside
//! closures that run at the same time. The promise that parts do not overlap is made here, once per call, with `unsafe`.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice whose disjoint parts may be written by different threads.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: `Parts` only gives out references through unsafe functions whose callers promise that no two overlap, which
// is the same as sending `&mut T` for each element to the thread that asked for it.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of the first element.
    pub(crate) fn start(&self) -> *const T {
        self.start
    }

    /// Elements `range`.
    ///
    /// # Safety
    /// No two living results of `range` and `columns` may overlap.
    #[allow(clippy::mut_from_ref)] // the point of the type; see the safety section
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {}", self.len);
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// A matrix within the slice: `rows` rows of `width` elements, `stride` apart, the first at `first`.
    ///
    /// # Safety
    /// No two living results of `range` and `columns` may overlap.
    pub(crate) unsafe fn columns(
        &self,
        first: usize,
        rows: usize,
        stride: usize,
        width: usize,
    ) -> Columns<'_, T> {
        assert!(width <= stride || rows <= 1, "rows of {width} overlap at a stride of {stride}");
        assert!(rows == 0 || first + (rows - 1) * stride + width <= self.len, "columns leave the slice");
        // SAFETY: `first` is in bounds (or one past the end of an empty part) by the assertion.
        let start = if rows == 0 { self.start } else { unsafe { self.start.add(first) } };
        Columns { start, rows, stride, width, borrow: PhantomData }
    }
}

/// Some columns of a row-major matrix, written by one task.
pub(crate) struct Columns<'a, T> {
    start: *mut T,
    rows: usize,
    stride: usize,
    width: usize,
    borrow: PhantomData<&'a mut [T]>,
}

impl<T> Columns<'_, T> {
    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// This task's part of row `i`.
    #[inline]
    pub(crate) fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        // SAFETY: `Parts::columns` checked that all rows are in bounds and its caller that nobody else has them;
        // `&mut self` keeps two rows from being lent out at once.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.stride), self.width) }
    }

    /// Writes `values` into row `i` from `at` on, as many of them as it has room for.
    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, i: usize, at: usize, values: &[T; N])
    where
        T: Copy,
    {
        let row = &mut self.row(i)[at..];
        match row.first_chunk_mut() {
            Some(whole) => *whole = *values,
            None => put_some(row, values),
        }
    }
}

/// Fills `row` with the first of `values`. Not part of its caller, where the compiler would make one call to copy memory of this and
/// of the copy of all values, which is a vector's store.
#[cold]
#[inline(never)]
fn put_some<T: Copy>(row: &mut [T], values: &[T]) {
    row.copy_from_slice(&values[..row.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_columns() {
        let mut data: Vec<u32> = (0..12).collect();
        let parts = Parts::new(&mut data);
        // SAFETY: columns 0..2 and 2..4 do not overlap.
        let (mut left, mut right) = unsafe { (parts.columns(0, 3, 4, 2), parts.columns(2, 3, 4, 2)) };
        assert_eq!(left.row(1), [4, 5]);
        right.row(2)[1] = 99;
        assert_eq!(data[11], 99);
    }

    #[test]
    #[should_panic(expected = "leave the slice")]
    fn columns_outside_are_refused() {
        let mut data = [0u8; 11];
        let parts = Parts::new(&mut data);
        // SAFETY: only one part is made.
        let _ = unsafe { parts.columns(2, 3, 4, 2) };
    }
}
