//! The rows of one sequence in a batch.

use ds4_array::{Array, ops};

use crate::LayerError;

/// Where the rows of one sequence stand in a batch's matrices, and where they stand in their sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the first row in the batch.
    pub first_row: usize,
    /// Number of rows: new tokens.
    pub rows: usize,
    /// Position of the first new token in its sequence: how many tokens its caches hold.
    pub first_position: usize,
}

impl Segment {
    /// This segment's rows of a batch matrix; a view.
    pub fn rows_of(&self, x: &Array) -> Result<Array, LayerError> {
        Ok(ops::slice_rows(x, self.first_row, self.rows)?)
    }

    /// How many rows each segment has.
    pub(crate) fn row_counts(segments: &[Self]) -> impl Iterator<Item = usize> {
        segments.iter().map(|segment| segment.rows)
    }

    /// The rows before `position` in their sequence, and those from it on; either may be empty.
    pub fn split_at(&self, position: usize) -> [Self; 2] {
        let before = position.saturating_sub(self.first_position).min(self.rows);
        let after = Self {
            first_row: self.first_row + before,
            rows: self.rows - before,
            first_position: self.first_position + before,
        };
        [Self { rows: before, ..*self }, after]
    }
}

/// Runs a stateful step for every segment and joins the results in the order of rows. `step` gets the segment's index.
pub fn per_segment(
    segments: &[Segment],
    mut step: impl FnMut(usize, &Segment) -> Result<Array, LayerError>,
) -> Result<Array, LayerError> {
    let parts: Vec<Array> =
        segments.iter().enumerate().map(|(i, segment)| step(i, segment)).collect::<Result<_, _>>()?;
    Ok(ops::concatenate(&parts.iter().collect::<Vec<_>>(), 0)?)
}
