//! How many tokens to draft in the next cycle, so that drafting pays.
//!
//! The expected number of tokens of a cycle with d drafts follows from the acceptance measured at each position, its cost
//! from the times of passes and drafts; the depth with the best ratio wins, 0 included. While 0 wins, drafting is tried
//! again after a while, and ever more rarely, so that a workload on which it never pays loses next to nothing.
//!
//! Measured times would make the draws of a sampled answer depend on the machine's mood: there the costs are assumed, so
//! that a seed reproduces. A greedy answer is the same at any depth.

/// Weight of a new measurement.
const EWMA: f64 = 0.15;

/// Chance that a draft is accepted before any was measured.
const PRIOR_ACCEPTANCE: f64 = 0.8;

/// Cycles without drafts until drafting is tried again, at first and at most.
const RETRY_CYCLES: std::ops::RangeInclusive<u32> = 64..=1024;

/// Every so many drafting cycles a plain pass is measured.
const PLAIN_EVERY: u32 = 64;

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    most: usize,
    /// Chance that the draft at a position is accepted if all before it were.
    acceptance: Vec<f64>,
    costs: Costs,
    measured: bool,
    cycle: u32,
    /// Plain cycles until drafting is tried again, and the length of that wait.
    wait: u32,
    retry: u32,
}

/// Seconds, or any unit: only ratios count.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// A pass over one row.
    plain: f64,
    /// Each further row of a pass.
    row: f64,
    /// One draft.
    draft: f64,
}

impl Pace {
    /// Costs are measured as cycles go on.
    pub(crate) fn measured(most: usize) -> Self {
        Self::new(most, true)
    }

    /// Costs are assumed.
    pub(crate) fn assumed(most: usize) -> Self {
        Self::new(most, false)
    }

    fn new(most: usize, measured: bool) -> Self {
        Self {
            most,
            acceptance: vec![PRIOR_ACCEPTANCE; most],
            costs: Costs { plain: 1.0, row: 0.15, draft: 0.15 },
            measured,
            cycle: 0,
            wait: 0,
            retry: *RETRY_CYCLES.start(),
        }
    }

    /// Drafts for the next cycle.
    pub(crate) fn depth(&mut self) -> usize {
        self.cycle += 1;
        // The second cycle measures what a plain pass costs, and later ones see to it that this stays true.
        if self.measured && self.cycle % PLAIN_EVERY == 2 {
            return 0;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return if self.wait == 0 { self.most } else { 0 };
        }
        let best = (0..=self.most).max_by(|&a, &b| self.rate(a).total_cmp(&self.rate(b))).unwrap_or(0);
        if best == 0 && self.most > 0 {
            self.wait = self.retry;
            self.retry = (self.retry * 2).min(*RETRY_CYCLES.end());
        } else if best > 0 {
            self.retry = *RETRY_CYCLES.start();
        }
        best
    }

    /// Expected tokens for each unit of cost.
    fn rate(&self, depth: usize) -> f64 {
        let mut chance = 1.0;
        let accepted: f64 = self.acceptance[..depth]
            .iter()
            .map(|acceptance| {
                chance *= acceptance;
                chance
            })
            .sum();
        let extra = (self.costs.row + self.costs.draft) * depth as f64;
        (1.0 + accepted) / (self.costs.plain + extra)
    }

    /// Learns how many of `drafted` drafts were accepted.
    pub(crate) fn observe(&mut self, drafted: usize, accepted: usize) {
        for position in 0..drafted.min(accepted + 1) {
            let hit = if position < accepted { 1.0 } else { 0.0 };
            blend(&mut self.acceptance[position], hit);
        }
    }

    /// Learns what a pass over `rows` rows and `drafts` drafts cost, in seconds.
    pub(crate) fn observe_costs(&mut self, rows: usize, verify: f64, drafts: usize, draft: f64) {
        if !self.measured {
            return;
        }
        if self.cycle <= 2 {
            // The first measurements replace the assumptions, which are in another unit.
            match rows {
                1 => {
                    self.costs =
                        Costs { plain: verify, row: self.costs.row * verify, draft: self.costs.draft }
                }
                _ => self.costs.draft = draft / drafts.max(1) as f64,
            }
            return;
        }
        match rows {
            1 => blend(&mut self.costs.plain, verify),
            _ => blend(&mut self.costs.row, (verify - self.costs.plain).max(0.0) / (rows - 1) as f64),
        }
        if drafts > 0 {
            blend(&mut self.costs.draft, draft / drafts as f64);
        }
    }
}

fn blend(value: &mut f64, new: f64) {
    *value += EWMA * (new - *value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs cycles in which each draft is accepted or not as told; returns the depths.
    fn run(pace: &mut Pace, cycles: usize, accepted: usize, draft: f64, row: f64) -> Vec<usize> {
        let mut depths = Vec::new();
        for _ in 0..cycles {
            let depth = pace.depth();
            pace.observe(depth, accepted.min(depth));
            pace.observe_costs(depth + 1, 1.0 + row * depth as f64, depth, draft * depth as f64);
            depths.push(depth);
        }
        depths
    }

    #[test]
    fn good_drafts_are_made_to_full_depth() {
        let depths = run(&mut Pace::measured(3), 200, 3, 0.2, 0.1);
        assert!(depths[10..].iter().filter(|&&depth| depth == 3).count() > 180, "{depths:?}");
    }

    #[test]
    fn drafts_that_fail_are_given_up_and_tried_rarely() {
        let mut pace = Pace::measured(3);
        run(&mut pace, 100, 0, 0.3, 0.2);
        let depths = run(&mut pace, 3000, 0, 0.3, 0.2);
        let work: f64 = depths.iter().map(|&depth| 1.0 + 0.5 * depth as f64).sum();
        assert!(work / 3000.0 < 1.02, "{work}");
    }

    #[test]
    fn drafting_comes_back_when_it_pays_again() {
        let mut pace = Pace::measured(3);
        run(&mut pace, 300, 0, 0.2, 0.1);
        let depths = run(&mut pace, 4000, 3, 0.2, 0.1);
        assert!(depths[3500..].iter().filter(|&&depth| depth == 3).count() > 450);
    }

    #[test]
    fn expensive_drafts_are_not_made() {
        let depths = run(&mut Pace::measured(3), 500, 3, 2.0, 0.5);
        assert!(depths[100..].iter().filter(|&&depth| depth > 0).count() < 20, "{depths:?}");
    }

    #[test]
    fn assumed_costs_make_the_depths_repeatable() {
        let depths = |draft| run(&mut Pace::assumed(3), 300, 2, draft, 0.1);
        assert_eq!(depths(0.1), depths(5.0));
    }
}
