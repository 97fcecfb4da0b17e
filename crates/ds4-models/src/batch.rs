//! Where the rows of a batch come from and which of them are wanted, the same in every family.

use ds4_array::{Array, ops};
use ds4_layers::{LayerError, Segment};

use crate::{BatchSegment, LogitRows};

/// The places of the segments' rows, one segment after the other.
pub(crate) fn segments_of(batch: &[BatchSegment<'_>]) -> Vec<Segment> {
    let mut first_row = 0;
    let place = |segment: &BatchSegment<'_>| {
        let rows = segment.tokens.len();
        let place = Segment { first_row, rows, first_position: segment.cache.tokens() };
        first_row += rows;
        place
    };
    batch.iter().map(place).collect()
}

/// The ids of all rows.
pub(crate) fn tokens_of(batch: &[BatchSegment<'_>]) -> Vec<u32> {
    batch.iter().flat_map(|segment| segment.tokens).copied().collect()
}

/// The positions of all rows in their sequences.
pub(crate) fn positions_of(segments: &[Segment]) -> Vec<usize> {
    segments.iter().flat_map(|s| s.first_position..s.first_position + s.rows).collect()
}

/// The rows of `x` [N, W] for which logits are wanted; `None` if there are none.
pub(crate) fn wanted_rows(
    x: &Array,
    batch: &[BatchSegment<'_>],
    segments: &[Segment],
) -> Result<Option<Array>, LayerError> {
    let mut wanted = Vec::new();
    for (segment, place) in batch.iter().zip(segments) {
        match segment.logits {
            LogitRows::None => {}
            LogitRows::Last => wanted.push(ops::slice_rows(x, place.first_row + place.rows - 1, 1)?),
            LogitRows::All => wanted.push(ops::slice_rows(x, place.first_row, place.rows)?),
        }
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    Ok(Some(ops::concatenate(&wanted.iter().collect::<Vec<_>>(), 0)?))
}
