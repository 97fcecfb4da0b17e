//! Which snapshots of a session are kept as it grows: all near its end, fewer and fewer towards its beginning.
//!
//! Behind the dense stretch the timeline is divided into cells that double in length with each doubling of the distance
//! from the end. A cell keeps its best snapshot. Cells only ever merge as the session grows, so what was let go is never
//! wanted again, and a session of N tokens keeps O(log N) snapshots.

use std::collections::HashMap;

/// What a snapshot marks. Later kinds are worth more when one of two must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SnapshotKind {
    /// A boundary inside a prompt, on the grid.
    Boundary,
    /// The end of a prompt, before the answer.
    PromptEnd,
    /// The end of an answer.
    TurnEnd,
    /// The end of a system prompt with its tools, which other sessions share. Always kept.
    SharedPrefix,
}

/// Lengths that decide what is kept, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Distance of boundaries inside the dense stretch.
    pub grid: usize,
    /// Length of the stretch before the end in which everything is kept.
    pub dense: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { grid: 256, dense: 2048 }
    }
}

impl Retention {
    /// Where snapshots are worth taking inside a prompt that runs the tokens from `start` to `end`: the grid points of
    /// its last dense stretch, and before it one at the end of each cell. Ascending, without the ends.
    pub fn boundaries(&self, start: usize, end: usize) -> Vec<usize> {
        let first = (start / self.grid + 1) * self.grid;
        let points = (first..end).step_by(self.grid);
        let ends_cell = |point: &usize| {
            let cell = self.cell(*point, end);
            cell.is_none() || cell != self.cell(point + self.grid, end)
        };
        points.filter(ends_cell).collect()
    }

    /// Which snapshots to let go: indices into `snapshots`, which lie on one timeline that is `end` tokens long. The
    /// newest end of a prompt and of a turn are always kept.
    pub fn superfluous(&self, snapshots: &[(usize, SnapshotKind)], end: usize) -> Vec<usize> {
        let last = |kind| snapshots.iter().filter(|(_, k)| *k == kind).map(|(at, _)| *at).max();
        let newest = [last(SnapshotKind::PromptEnd), last(SnapshotKind::TurnEnd)];
        let is_fixed = |at: usize, kind| kind == SnapshotKind::SharedPrefix || newest.contains(&Some(at));
        let mut best: HashMap<(u32, usize), usize> = HashMap::new();
        let mut superfluous = Vec::new();
        for (i, &(at, kind)) in snapshots.iter().enumerate() {
            let Some(cell) = self.cell(at, end) else { continue };
            if is_fixed(at, kind) {
                continue;
            }
            let Some(rival) = best.insert(cell, i) else { continue };
            let (rival_at, rival_kind) = snapshots[rival];
            if (rival_kind, rival_at) > (kind, at) {
                best.insert(cell, rival);
                superfluous.push(i);
            } else {
                superfluous.push(rival);
            }
        }
        superfluous.sort_unstable();
        superfluous
    }

    /// The cell of a position: its octave, and its place there. `None` in the dense stretch, where everything is kept.
    /// A cell holds the positions up to and including its end, so that its last grid point can stand for it.
    fn cell(&self, at: usize, end: usize) -> Option<(u32, usize)> {
        let octave = (end.saturating_sub(at) / self.dense.max(1)).checked_ilog2()?;
        Some((octave, at.saturating_sub(1) / (self.grid << (octave + 1))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RETENTION: Retention = Retention { grid: 256, dense: 2048 };

    #[test]
    fn a_short_prompt_has_all_grid_points() {
        assert_eq!(RETENTION.boundaries(0, 1000), [256, 512, 768]);
        assert_eq!(RETENTION.boundaries(300, 1024), [512, 768]);
        assert_eq!(RETENTION.boundaries(0, 100), [0usize; 0]);
    }

    #[test]
    fn the_end_of_a_turn_outlives_boundaries() {
        let kinds =
            [(1024, SnapshotKind::Boundary), (900, SnapshotKind::TurnEnd), (9000, SnapshotKind::TurnEnd)];
        assert_eq!(RETENTION.superfluous(&kinds, 9000), [0]);
    }

    #[test]
    fn shared_prefixes_and_newest_ends_stay() {
        let kinds = [
            (100, SnapshotKind::SharedPrefix),
            (101, SnapshotKind::SharedPrefix),
            (102, SnapshotKind::PromptEnd),
            (103, SnapshotKind::TurnEnd),
        ];
        assert!(RETENTION.superfluous(&kinds, 1 << 20).is_empty());
    }

    /// Lets a session grow by `steps` and prunes after each.
    fn grown(steps: &[usize]) -> (Vec<(usize, SnapshotKind)>, usize) {
        let mut snapshots = Vec::new();
        let mut end = 0;
        for step in steps {
            let start = end;
            end += step;
            let inside = RETENTION.boundaries(start, end).into_iter().map(|at| (at, SnapshotKind::Boundary));
            snapshots.extend(inside);
            snapshots.push((end, SnapshotKind::TurnEnd));
            for i in RETENTION.superfluous(&snapshots, end).into_iter().rev() {
                snapshots.remove(i);
            }
        }
        (snapshots, end)
    }

    proptest! {
        #[test]
        fn few_are_kept_and_one_is_always_near(steps in prop::collection::vec(1..6000usize, 1..60)) {
            let (snapshots, end) = grown(&steps);
            // In the dense stretch a grid point each and every turn; behind it about four cells an octave.
            let dense = snapshots.iter().filter(|(at, _)| RETENTION.cell(*at, end).is_none()).count();
            prop_assert!(snapshots.len() - dense <= 6 * 8 + 3, "{} kept", snapshots.len() - dense);
            for wanted in 1..=end {
                let distance = end - wanted;
                let near = snapshots.iter().map(|(at, _)| *at).filter(|at| *at <= wanted).max().unwrap_or(0);
                // Two cells of the octave: the one of the position and the one before.
                let allowed = if distance < RETENTION.dense { 3 * RETENTION.grid } else { distance + 4 * RETENTION.grid };
                prop_assert!(wanted - near <= allowed, "{wanted} of {end} is {} away", wanted - near);
            }
        }
    }
}
