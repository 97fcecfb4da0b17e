//! Sizes of up to four axes, kept inline so that a node needs no allocation for them.

use std::fmt;
use std::ops::Deref;

/// Most axes an array can have: layers need no more.
pub(crate) const MAX_RANK: usize = 4;

/// The size of each axis, slowest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    sizes: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// A shape of at most four axes, or `None` if there are more.
    pub fn try_new(sizes: &[usize]) -> Option<Self> {
        let mut all = [1; MAX_RANK];
        all.get_mut(..sizes.len())?.copy_from_slice(sizes);
        Some(Self { sizes: all, rank: sizes.len() as u8 })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// Size of the last axis; 1 for a scalar.
    pub fn width(&self) -> usize {
        self.last().copied().unwrap_or(1)
    }

    /// Elements divided by the size of the last axis.
    pub fn rows(&self) -> usize {
        self.split_last().map_or(1, |(_, rest)| rest.iter().product())
    }

    /// The same axes with the last one resized.
    pub fn with_width(mut self, width: usize) -> Self {
        if self.rank == 0 {
            self.rank = 1;
        }
        self.sizes[usize::from(self.rank) - 1] = width;
        self
    }

    /// The same axes with the first one resized.
    pub fn with_first(mut self, size: usize) -> Self {
        self.sizes[0] = size;
        self
    }

    /// Strides, in elements, of a dense row-major layout.
    pub(crate) fn dense_strides(&self) -> [usize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut next = 1;
        for axis in (0..self.len()).rev() {
            strides[axis] = next;
            next *= self[axis];
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.sizes[..usize::from(self.rank)]
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        const { assert!(N <= MAX_RANK) };
        let mut all = [1; MAX_RANK];
        all[..N].copy_from_slice(&sizes);
        Self { sizes: all, rank: N as u8 }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &**self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_counts_its_elements_rows_and_strides() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!((shape.elements(), shape.rows(), shape.width()), (24, 6, 4));
        assert_eq!(shape.dense_strides()[..3], [12, 4, 1]);
        assert_eq!(&*shape.with_width(5), &[2, 3, 5]);
        assert_eq!(Shape::from([]).elements(), 1);
    }

    #[test]
    fn more_than_four_axes_are_refused() {
        assert!(Shape::try_new(&[1; 5]).is_none());
    }
}
