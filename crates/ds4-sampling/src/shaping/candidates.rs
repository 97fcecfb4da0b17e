//! The largest logits of a row in descending order, without sorting the row.

use super::scan::RowScan;
use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Logit; never -0, so that the order below treats both zeros alike.
    pub(crate) logit: f32,
    /// Token id.
    pub(crate) id: u32,
    /// Unnormalised probability, filled in by the rule that uses it.
    pub(crate) weight: f64,
}

impl Candidate {
    pub(crate) fn new(id: u32, logit: f32) -> Self {
        // Adding +0 turns -0 into +0 and changes nothing else.
        Self { logit: logit + 0.0, id, weight: 0.0 }
    }
}

/// Larger logit first; of equal logits the lower id. A total order, since logits are never NaN here.
pub(crate) fn descending(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Fills `out` with the `k` largest logits in [`descending`] order (all of them if the row is shorter).
///
/// Candidates gather in a buffer of at most 2k entries; when it is full, selection keeps the best k and raises the
/// floor that later logits must reach. Rows are read in id order, so that a later logit equal to the floor never wins.
pub(crate) fn largest(logits: &[f32], scan: &RowScan, k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    let k = k.min(logits.len());
    if k == 0 {
        return;
    }
    let capacity = k.saturating_mul(2).max(k + 32);
    let mut floor: Option<f32> = None;
    for (first, max, block) in scan.blocks(logits) {
        if floor.is_some_and(|floor| max <= floor) {
            continue;
        }
        for (id, &logit) in (first..).zip(block) {
            if floor.is_some_and(|floor| logit <= floor) {
                continue;
            }
            out.push(Candidate::new(id, logit));
            if out.len() == capacity {
                floor = Some(keep_best(out, k));
            }
        }
    }
    if out.len() > k {
        keep_best(out, k);
    }
    out.sort_unstable_by(descending);
}

/// Cuts `out` to its best `k` entries and returns the smallest logit kept.
fn keep_best(out: &mut Vec<Candidate>, k: usize) -> f32 {
    let (_, worst, _) = out.select_nth_unstable_by(k - 1, descending);
    let floor = worst.logit;
    out.truncate(k);
    floor
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_full_sort(
            // Few distinct values, so that ties at the cut are the rule.
            row in prop::collection::vec(prop_oneof![(-8i8..8).prop_map(|v| f32::from(v) / 4.0), Just(-0.0f32),
                                                     Just(f32::NEG_INFINITY)], 1..700),
            k in 0usize..300,
        ) {
            let mut scan = RowScan::default();
            prop_assume!(scan.run(&row).is_ok());
            let mut found = Vec::new();
            largest(&row, &scan, k, &mut found);
            let mut expected: Vec<Candidate> =
                row.iter().enumerate().map(|(id, &logit)| Candidate::new(id as u32, logit)).collect();
            expected.sort_by(descending);
            expected.truncate(k);
            prop_assert_eq!(found, expected);
        }
    }
}
