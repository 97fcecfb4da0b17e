//! How many tokens to draft in the next cycle, and whether to copy from the prompt, so that speculation pays.
//!
//! The expected number of tokens of a cycle with d drafts follows from the acceptance measured at each position, its cost
//! from the times of passes and drafts; the depth with the best ratio wins, 0 included. While 0 wins, one draft is tried
//! again after a while, and ever more rarely, so that a workload on which drafting never pays loses next to nothing.
//! Copying has rules of its own in `ds4-sampling`; here it ends when it has cost more passes than it saved.
//!
//! Measured times would make the draws of a sampled answer depend on the machine's mood: there the costs are assumed, so
//! that a seed reproduces. A greedy answer is the same at any depth.

use std::collections::VecDeque;

/// Observations that an average remembers.
const MEMORY: f64 = 7.0;

/// Chance that a draft is accepted before any was seen, and how many observations that is worth. Light enough that a head
/// which is always wrong is given up after three drafts.
const PRIOR_ACCEPTANCE: Average = Average { mean: 0.75, weight: 2.0 };

/// Cost of a further row of a pass, and of a draft, where they are not measured; in plain passes.
const ROW: f64 = 0.25;
const DRAFT: f64 = 0.15;

/// How much of the acceptance one position earlier a position that was not tried takes on in a cycle. So deeper drafts are
/// tried again once the first ones hold.
const HOPE: f64 = 0.006;

/// How much better than plain decoding drafting must look: a gain within the noise is none.
const MARGIN: f64 = 1.05;

/// Cycles without drafts until one is tried again, at first and at most.
const RETRY_CYCLES: std::ops::RangeInclusive<u32> = 64..=1024;

/// In each period of so many cycles two are plain, from this one on; in the first period earlier ones if no answer before
/// has shown what a plain pass costs. The second one is measured: the first also does what the cycle before it left to be
/// repaired.
const PLAIN_PERIOD: u32 = 128;
const PLAIN_CYCLE: u32 = 68;
const FIRST_PLAIN_CYCLE: u32 = 4;

/// Times of which the shortest counts: whatever else the machine does can only make them longer.
const RECENT_TIMES: usize = 6;

/// Passes that copying may have cost in all before it ends.
const COPY_ALLOWANCE: f64 = 1.0;

/// Saved passes that copying may set against later losses.
const COPY_CREDIT: f64 = 4.0;

/// An average of the latest observations.
#[derive(Clone, Copy, Debug)]
struct Average {
    mean: f64,
    /// Observations behind the mean.
    weight: f64,
}

impl Average {
    fn observe(&mut self, value: f64) {
        self.weight = (self.weight + 1.0).min(MEMORY);
        self.mean += (value - self.mean) / self.weight;
    }
}

/// The shortest of the latest times, in seconds.
#[derive(Clone, Debug, Default)]
struct Shortest(VecDeque<f64>);

impl Shortest {
    fn observe(&mut self, seconds: f64) {
        self.0.truncate(RECENT_TIMES - 1);
        self.0.push_front(seconds);
    }

    fn get(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::min)
    }
}

/// Measured times. They belong to the model and the machine and go from one answer to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    /// Of passes, by the number of drafts that they check: the first one is plain.
    passes: Vec<Shortest>,
    /// Of one draft.
    draft: Shortest,
}

impl Costs {
    /// The cost of a cycle with `depth` drafts, in plain passes.
    fn of(&self, depth: usize) -> f64 {
        let Some(plain) = self.pass(0) else { return assumed_cost(depth) };
        let further = |depth: usize| Some((self.pass(depth)? / plain - 1.0).max(0.0));
        // Depths that were not run cost a row what the deepest one that was run did, or less: the first further row may be
        // dearer than the others, and only a try can tell.
        let row = (1..self.passes.len()).rev().find_map(|other| Some(further(other)? / other as f64));
        let rows = further(depth).unwrap_or_else(|| row.map_or(ROW, |row| row.min(ROW)) * depth as f64);
        let draft = self.draft.get().map_or(DRAFT, |draft| draft / plain);
        1.0 + rows + draft * depth as f64
    }

    fn pass(&self, drafts: usize) -> Option<f64> {
        self.passes.get(drafts)?.get()
    }

    fn observe_pass(&mut self, drafts: usize, seconds: f64) {
        let count = self.passes.len().max(drafts + 1);
        self.passes.resize_with(count, Shortest::default);
        self.passes[drafts].observe(seconds);
    }
}

/// The same where nothing is measured.
fn assumed_cost(depth: usize) -> f64 {
    1.0 + (ROW + DRAFT) * depth as f64
}

/// The speed policy of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Chance that the draft at a position is accepted if all before it were.
    acceptance: Vec<Average>,
    /// `None` if costs are assumed.
    costs: Option<Costs>,
    was_plain: bool,
    cycle: u32,
    /// Plain cycles until drafting is tried again, and the length of the next such wait.
    wait: u32,
    retry: u32,
    /// Passes that copying has saved (or cost, if negative).
    copied: f64,
}

/// What a cycle took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CycleTimes {
    /// Seconds of the pass that checked the window.
    pub(crate) check: f64,
    /// Seconds of all drafts.
    pub(crate) draft: f64,
}

impl Pace {
    /// Costs are those of earlier answers, and measured as cycles go on.
    pub(crate) fn measured(most: usize, costs: Costs) -> Self {
        Self { costs: Some(costs), ..Self::assumed(most) }
    }

    /// What was measured, for the next answer.
    pub(crate) fn into_costs(self) -> Option<Costs> {
        self.costs
    }

    /// Costs are assumed.
    pub(crate) fn assumed(most: usize) -> Self {
        Self {
            acceptance: vec![PRIOR_ACCEPTANCE; most],
            costs: None,
            was_plain: false,
            cycle: 0,
            wait: 0,
            retry: *RETRY_CYCLES.start(),
            copied: 0.0,
        }
    }

    /// Drafts for the next cycle.
    pub(crate) fn depth(&mut self) -> usize {
        let most = self.acceptance.len();
        self.cycle += 1;
        if most == 0 || self.is_plain_cycle() {
            return 0;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return usize::from(self.wait == 0);
        }
        let best = (0..=most).max_by(|&a, &b| self.rate(a).total_cmp(&self.rate(b))).unwrap_or(0);
        if self.rate(best) >= MARGIN {
            self.retry = *RETRY_CYCLES.start();
            return best;
        }
        self.wait = self.retry;
        self.retry = (self.retry * 2).min(*RETRY_CYCLES.end());
        0
    }

    /// Whether this cycle is plain in order to be measured.
    fn is_plain_cycle(&self) -> bool {
        let Some(costs) = &self.costs else { return false };
        let first = if costs.pass(0).is_none() { FIRST_PLAIN_CYCLE } else { PLAIN_CYCLE };
        (first..first + 2).contains(&(self.cycle % PLAIN_PERIOD))
    }

    /// Expected tokens for each plain pass's worth of time.
    fn rate(&self, depth: usize) -> f64 {
        let mut chance = 1.0;
        let accepted: f64 = self.acceptance[..depth]
            .iter()
            .map(|acceptance| {
                chance *= acceptance.mean;
                chance
            })
            .sum();
        (1.0 + accepted) / self.costs.as_ref().map_or_else(|| assumed_cost(depth), |costs| costs.of(depth))
    }

    /// Learns from a cycle in which `accepted` of `drafted` drafts were accepted.
    pub(crate) fn observe(&mut self, drafted: usize, accepted: usize, times: CycleTimes) {
        for position in 0..self.acceptance.len() {
            if position < drafted.min(accepted + 1) {
                self.acceptance[position].observe(if position < accepted { 1.0 } else { 0.0 });
            } else if position >= drafted && drafted > 0 && position > 0 {
                let before = self.acceptance[position - 1].mean;
                let untried = &mut self.acceptance[position].mean;
                *untried += HOPE * (before - *untried);
            }
        }
        self.observe_times(drafted, times);
    }

    fn observe_times(&mut self, drafted: usize, times: CycleTimes) {
        let was_plain = std::mem::replace(&mut self.was_plain, drafted == 0);
        let Some(costs) = &mut self.costs else { return };
        if drafted > 0 || was_plain {
            costs.observe_pass(drafted, times.check);
        }
        if drafted > 0 {
            costs.draft.observe(times.draft / drafted as f64);
        }
    }

    /// Learns from a cycle that checked a copied block of `length` tokens and accepted `accepted` of them.
    pub(crate) fn observe_copy(&mut self, length: usize, accepted: usize) {
        self.was_plain = false;
        let cost = ROW * length as f64;
        self.copied = (self.copied + accepted as f64 - cost).min(COPY_CREDIT);
    }

    /// Whether copying has not cost too much so far.
    pub(crate) fn copying_pays(&self) -> bool {
        self.copied > -COPY_ALLOWANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a plain pass.
    const PLAIN: f64 = 0.02;

    /// The first answer of an engine.
    fn fresh(most: usize) -> Pace {
        Pace::measured(most, Costs::default())
    }

    /// Runs cycles in which so many drafts would be accepted; costs are in plain passes. Returns the depths.
    fn run(pace: &mut Pace, cycles: usize, accepted: usize, draft: f64, row: f64) -> Vec<usize> {
        let mut depths = Vec::new();
        for _ in 0..cycles {
            let depth = pace.depth();
            let times =
                CycleTimes { check: PLAIN * (1.0 + row * depth as f64), draft: PLAIN * draft * depth as f64 };
            pace.observe(depth, accepted.min(depth), times);
            depths.push(depth);
        }
        depths
    }

    fn count(depths: &[usize], wanted: usize) -> usize {
        depths.iter().filter(|&&depth| depth == wanted).count()
    }

    #[test]
    fn good_drafts_are_made_to_full_depth() {
        let depths = run(&mut fresh(3), 200, 3, 0.2, 0.1);
        assert!(count(&depths[10..], 3) > 180, "{depths:?}");
    }

    #[test]
    fn drafts_that_fail_cost_little_even_in_a_short_answer() {
        for (cycles, limit) in [(40, 1.5), (3000, 5.0)] {
            let depths = run(&mut fresh(3), cycles, 0, 0.3, 0.2);
            let lost: f64 = depths.iter().map(|&depth| 0.5 * depth as f64).sum();
            assert!(lost <= limit, "{lost} passes of {cycles}");
        }
    }

    #[test]
    fn drafting_comes_back_when_it_pays_again() {
        let mut pace = fresh(3);
        run(&mut pace, 300, 0, 0.2, 0.1);
        let depths = run(&mut pace, 2000, 3, 0.2, 0.1);
        assert!(count(&depths[1500..], 3) > 450, "{depths:?}");
    }

    #[test]
    fn only_as_many_drafts_as_hold_are_made() {
        let depths = run(&mut fresh(5), 500, 1, 0.15, 0.15);
        assert!(count(&depths[50..], 1) > 380, "{depths:?}");
    }

    #[test]
    fn expensive_drafts_are_not_made() {
        let depths = run(&mut fresh(3), 500, 3, 2.0, 0.5);
        assert!(depths[100..].iter().filter(|&&depth| depth > 0).count() < 20, "{depths:?}");
    }

    #[test]
    fn an_interruption_does_not_end_drafting() {
        let mut pace = fresh(3);
        run(&mut pace, 100, 3, 0.15, 0.1);
        pace.depth();
        pace.observe(3, 3, CycleTimes { check: PLAIN * 100.0, draft: PLAIN });
        let depths = run(&mut pace, 20, 3, 0.15, 0.1);
        assert!(count(&depths, 0) <= 2, "{depths:?}");
    }

    #[test]
    fn the_next_answer_knows_what_passes_cost() {
        let mut first = fresh(3);
        run(&mut first, 40, 3, 0.2, 0.1);
        let costs = first.into_costs().unwrap();
        let depths = run(&mut Pace::measured(3, costs.clone()), 40, 3, 0.2, 0.1);
        assert_eq!(count(&depths, 0), 0, "{depths:?}");
        assert!(count(&depths, 3) >= 38, "{depths:?}");
        // What does not pay is not tried to full depth again.
        let depths = run(&mut Pace::measured(3, costs), 40, 0, 0.2, 0.1);
        assert!(depths.iter().sum::<usize>() <= 6, "{depths:?}");
    }

    #[test]
    fn assumed_costs_make_the_depths_repeatable() {
        let depths = |draft| run(&mut Pace::assumed(3), 300, 2, draft, 0.1);
        assert_eq!(depths(0.1), depths(5.0));
    }

    #[test]
    fn copying_ends_when_it_has_cost_a_pass() {
        let mut pace = Pace::assumed(0);
        pace.observe_copy(8, 0);
        assert!(!pace.copying_pays());
        let mut pace = Pace::assumed(0);
        pace.observe_copy(8, 8);
        (0..2).for_each(|_| pace.observe_copy(8, 0));
        assert!(pace.copying_pays());
        pace.observe_copy(8, 0);
        assert!(!pace.copying_pays());
    }
}
