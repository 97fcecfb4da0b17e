//! The order in which expert layers compute: all rows of an expert together.

/// Sorts the pairs (token `m`, slot `s`) by the expert `indices[m, s]`, keeping the order of tokens within an expert.
///
/// `indices` is [M, `k`]. `out_rows` [M * k]: token of each sorted pair. `out_offsets` [experts + 1]: where each
/// expert's pairs begin. `out_position` [M, k]: where each pair went. A stable counting sort on the calling thread.
pub fn sort_by_expert(
    indices: &[u32],
    k: usize,
    out_rows: &mut [u32],
    out_offsets: &mut [u32],
    out_position: &mut [u32],
) {
    debug_assert_eq!(out_rows.len(), indices.len());
    debug_assert_eq!(out_position.len(), indices.len());
    debug_assert!(indices.iter().all(|&expert| (expert as usize) < out_offsets.len() - 1));
    out_offsets.fill(0);
    for &expert in indices {
        out_offsets[expert as usize + 1] += 1;
    }
    for expert in 1..out_offsets.len() {
        out_offsets[expert] += out_offsets[expert - 1];
    }
    // The starts serve as cursors; afterwards each has moved to its expert's end, which is the next one's start.
    for (pair, &expert) in indices.iter().enumerate() {
        let cursor = &mut out_offsets[expert as usize];
        out_rows[*cursor as usize] = (pair / k) as u32;
        out_position[pair] = *cursor;
        *cursor += 1;
    }
    out_offsets.rotate_right(1);
    out_offsets[0] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_grouped_and_keep_their_order() {
        let indices = [2, 0, 2, 3, 0, 2];
        let (mut rows, mut offsets, mut position) = ([0; 6], [0; 5], [0; 6]);
        sort_by_expert(&indices, 2, &mut rows, &mut offsets, &mut position);
        assert_eq!(offsets, [0, 2, 2, 5, 6]);
        assert_eq!(rows, [0, 2, 0, 1, 2, 1]);
        assert_eq!(position, [2, 0, 3, 5, 1, 4]);
    }

    #[test]
    fn no_pairs_give_empty_groups() {
        let mut offsets = [9; 4];
        sort_by_expert(&[], 2, &mut [], &mut offsets, &mut []);
        assert_eq!(offsets, [0; 4]);
    }
}
