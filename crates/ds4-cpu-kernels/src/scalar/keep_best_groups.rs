//! Routing in two steps: groups of experts first.

use crate::scalar::top_k;

/// `out` = `scores` with minus infinity for the experts outside the `keep` best of `groups` groups.
pub(crate) fn row(scores: &[f32], groups: usize, keep: usize, out: &mut [f32]) {
    let size = scores.len() / groups;
    let value = |group: &[f32]| {
        let mut best = [0; 2];
        top_k::row(group, &mut best);
        group[best[0] as usize] + group[best[1] as usize]
    };
    let values: Vec<f32> = scores.chunks_exact(size).map(value).collect();
    let mut kept = vec![0; keep];
    top_k::row(&values, &mut kept);
    out.fill(f32::NEG_INFINITY);
    for group in kept {
        let experts = group as usize * size..(group as usize + 1) * size;
        out[experts.clone()].copy_from_slice(&scores[experts]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_best_experts_of_a_group_count_and_the_lower_of_equal_groups_wins() {
        const OUT: f32 = f32::NEG_INFINITY;
        let scores = [4.0, 0.0, 0.0, 3.0, 2.0, -9.0, 2.5, 2.5, 1.0, 1.0, 1.0, 1.0];
        let mut out = [0.0; 12];
        row(&scores, 4, 1, &mut out);
        assert_eq!(out, [OUT, OUT, OUT, 3.0, 2.0, -9.0, OUT, OUT, OUT, OUT, OUT, OUT]);
        row(&scores, 4, 3, &mut out);
        assert_eq!(out[..9], scores[..9]);
        assert_eq!(out[9..], [OUT; 3]);
    }
}
