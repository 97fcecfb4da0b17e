//! Routing in two steps: groups of experts first. Exact and the same on every instruction set, so there is one kernel.

use crate::{Cpu, scalar};

/// `out` = `scores` [L, E] with minus infinity for the experts outside the `keep` best of `groups` groups.
///
/// Experts of a group stand side by side. A group counts as much as its two best experts together; of equal groups the
/// lower one wins.
pub fn keep_best_groups(
    cpu: &Cpu,
    scores: &[f32],
    experts: usize,
    groups: usize,
    keep: usize,
    out: &mut [f32],
) {
    debug_assert_eq!(scores.len(), out.len());
    debug_assert!(experts.is_multiple_of(groups) && experts / groups >= 2 && keep <= groups);
    cpu.for_each_rows(out, experts, 8 * experts, |first, out| {
        let scores = scores[first * experts..].chunks_exact(experts);
        for (scores, out) in scores.zip(out.chunks_exact_mut(experts)) {
            scalar::keep_best_groups::row(scores, groups, keep, out);
        }
    });
}
