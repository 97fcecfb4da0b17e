//! How many tokens to draft in the next cycle, and whether to copy from the prompt, so that speculation pays.
//!
//! The expected number of tokens of a cycle with d drafts follows from the acceptance measured at each position, its cost
//! from the times of passes and drafts; the depth with the best ratio wins, 0 included. While 0 wins, one draft is tried
//! again after a while, and ever more rarely, so that a workload on which drafting never pays loses next to nothing.
//! Copying has rules of its own in `ds4-sampling`; here it ends when it has gained less than drafting would have
//! in the same time.
//!
//! Measured times would make the draws of a sampled answer depend on the machine's mood: there the costs are assumed, so
//! that a seed reproduces. A greedy answer is the same at any depth.

use std::collections::VecDeque;

/// Observations that an average remembers: of an answer, and of all.
const MEMORY: f64 = 7.0;
const LONG_MEMORY: f64 = 200.0;

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

/// Cycles after which three are plain in order to be compared with those before them: from the start of an answer if
/// earlier ones have shown what passes cost, else sooner, and from one comparison to the next. The first plain cycle is not
/// measured: it also does what the cycle before it left to be repaired.
const PLAIN_AFTER: u32 = 40;
const FIRST_PLAIN_AFTER: u32 = 4;
const PLAIN_PERIOD: u32 = 64;
const FIRST_PLAIN_PERIOD: u32 = 12;
const PLAIN_CYCLES: u32 = 3;

/// Neighbouring cycles of which the shortest counts: whatever else the machine does can only make them longer.
const NEIGHBOURS: usize = 3;

/// Comparisons of which the median counts, and how many are enough.
const COMPARISONS: usize = 9;
const ENOUGH: usize = 3;

/// Tokens that copying may have cost in all before it ends.
const COPY_ALLOWANCE: f64 = 1.0;

/// Gained tokens that copying may set against later losses.
const COPY_CREDIT: f64 = 4.0;

/// An average of the latest observations.
#[derive(Clone, Copy, Debug)]
struct Average {
    mean: f64,
    /// Observations behind the mean.
    weight: f64,
}

impl Average {
    fn observe(&mut self, value: f64, memory: f64) {
        self.weight = (self.weight + 1.0).min(memory);
        self.mean += (value - self.mean) / self.weight;
    }
}

/// The latest of a row of figures.
#[derive(Clone, Debug, Default)]
struct Latest(VecDeque<f64>);

impl Latest {
    fn observe(&mut self, figure: f64, most: usize) {
        self.0.truncate(most - 1);
        self.0.push_front(figure);
    }

    /// Of at least two: one alone may have been held up.
    fn shortest(&self) -> Option<f64> {
        if self.0.len() < 2 { None } else { self.0.iter().copied().reduce(f64::min) }
    }

    /// The median. Where there are not enough, `assumed` ones take the place of others: a single wrong one decides nothing.
    fn median_with(&self, assumed: f64) -> f64 {
        let missing = ENOUGH.saturating_sub(self.0.len());
        let mut sorted: Vec<f64> =
            self.0.iter().copied().chain(std::iter::repeat_n(assumed, missing)).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

/// What the answers so far have shown: what a further row of a pass and a draft cost, in plain passes, and how often drafts
/// were accepted. It belongs to the model and the machine and goes from one answer to the next.
///
/// Only passes that ran one right after the other are compared: how fast the machine is changes from second to second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Experience {
    row: Latest,
    draft: Latest,
    /// By position, as in [`Pace`], over many answers.
    acceptance: Vec<Average>,
    /// Drafts behind it.
    seen: u64,
}

impl Experience {
    /// The cost of a draft and of the row that checks it, in plain passes.
    fn cost_of_draft(&self) -> f64 {
        self.row.median_with(ROW) + self.draft.median_with(DRAFT)
    }

    fn knows_costs(&self) -> bool {
        self.row.0.len() >= ENOUGH
    }

    /// Chance that the draft at a position is accepted, before any was seen in an answer.
    fn expects(&self, position: usize) -> Average {
        let known = self.acceptance.get(position).filter(|known| known.weight >= MEMORY);
        Average { mean: known.map_or(PRIOR_ACCEPTANCE.mean, |known| known.mean), ..PRIOR_ACCEPTANCE }
    }

    /// What two answers have shown that ran side by side and began with the same: that of the one which has seen more.
    pub(crate) fn or_more(self, other: Self) -> Self {
        if other.seen > self.seen { other } else { self }
    }

    fn observe_draft(&mut self, position: usize, accepted: f64) {
        self.seen += 1;
        let count = self.acceptance.len().max(position + 1);
        self.acceptance.resize(count, Average { mean: 0.0, weight: 0.0 });
        self.acceptance[position].observe(accepted, LONG_MEMORY);
    }
}

/// Times of the latest cycles, in seconds.
#[derive(Clone, Debug, Default)]
struct Times {
    /// Plain passes since the last drafts.
    plain: Latest,
    plain_cycles: u32,
    /// Passes that checked so many drafts.
    checks: (usize, Latest),
    /// Single drafts.
    drafts: Latest,
}

impl Times {
    /// Notes a cycle. If plain cycles that can be compared with drafted ones are complete with it, `experience` grows.
    fn observe(&mut self, drafted: usize, times: CycleTimes, experience: &mut Experience) {
        if drafted > 0 {
            if self.checks.0 != drafted {
                self.checks = (drafted, Latest::default());
            }
            self.checks.1.observe(times.check, NEIGHBOURS);
            // The first drafts after plain cycles also bring the head's history up to date.
            if self.plain_cycles == 0 {
                self.drafts.observe(times.draft / drafted as f64, NEIGHBOURS);
            }
            (self.plain, self.plain_cycles) = (Latest::default(), 0);
            return;
        }
        self.plain_cycles += 1;
        if self.plain_cycles > 1 {
            self.plain.observe(times.check, NEIGHBOURS);
        }
        if self.plain_cycles != PLAIN_CYCLES {
            return;
        }
        let Some(plain) = self.plain.shortest() else { return };
        if let Some(check) = self.checks.1.shortest() {
            experience.row.observe((check / plain - 1.0).max(0.0) / self.checks.0 as f64, COMPARISONS);
        }
        if let Some(draft) = self.drafts.shortest() {
            experience.draft.observe(draft / plain, COMPARISONS);
        }
        (self.checks, self.drafts) = Default::default();
    }

    /// Whether plain cycles could be compared with the latest ones.
    fn are_comparable(&self) -> bool {
        self.checks.1.0.len() == NEIGHBOURS
    }
}

/// The speed policy of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Chance that the draft at a position is accepted if all before it were.
    acceptance: Vec<Average>,
    /// `None` if costs are assumed.
    experience: Option<Experience>,
    times: Times,
    /// Cycles until a comparison with plain ones is due, and plain cycles that are left of one.
    until_plain: u32,
    plain: u32,
    /// Plain cycles until drafting is tried again, and the length of the next such wait.
    wait: u32,
    retry: u32,
    /// Single drafts that are left to try.
    tries: usize,
    /// Tokens that copying has gained (or cost, if negative).
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
    /// Begins with what earlier answers have shown, and measures as cycles go on.
    pub(crate) fn measured(most: usize, experience: Experience) -> Self {
        let until_plain = if experience.knows_costs() { PLAIN_AFTER } else { FIRST_PLAIN_AFTER };
        let acceptance = (0..most).map(|position| experience.expects(position)).collect();
        Self { acceptance, experience: Some(experience), until_plain, ..Self::assumed(0) }
    }

    /// What was shown, for the next answer.
    pub(crate) fn into_experience(self) -> Option<Experience> {
        self.experience
    }

    /// Costs are assumed.
    pub(crate) fn assumed(most: usize) -> Self {
        Self {
            acceptance: vec![PRIOR_ACCEPTANCE; most],
            experience: None,
            times: Times::default(),
            until_plain: 0,
            plain: 0,
            wait: 0,
            retry: *RETRY_CYCLES.start(),
            tries: 0,
            copied: 0.0,
        }
    }

    /// Whether costs are measured, as for greedy answers.
    pub(crate) fn is_measured(&self) -> bool {
        self.experience.is_some()
    }

    /// Drafts for the next cycle, whose pass serves so many `others` as well.
    pub(crate) fn depth(&mut self, others: usize) -> usize {
        let most = self.acceptance.len();
        if most == 0 || (others == 0 && self.is_plain_cycle()) {
            return 0;
        }
        if self.wait > 0 {
            self.wait -= 1;
            self.tries = if self.wait > 0 { 0 } else { self.tries_now(others) };
        }
        if self.tries > 0 {
            self.tries -= 1;
            return 1;
        }
        if self.wait > 0 {
            return 0;
        }
        let (best, gain) = self.best(self.row(), self.cost_of_draft(), others);
        if gain >= MARGIN {
            self.retry = *RETRY_CYCLES.start();
            return best;
        }
        self.wait = self.retry;
        self.retry = (self.retry * 2).min(*RETRY_CYCLES.end());
        0
    }

    /// How often to try a draft after a wait: once to see whether it is accepted; if that is not in doubt but what it costs,
    /// as often as a comparison takes.
    fn tries_now(&self, others: usize) -> usize {
        let is_wanted = self.best(ROW, ROW + DRAFT, others).1 >= MARGIN;
        if self.experience.is_some() && is_wanted { NEIGHBOURS } else { 1 }
    }

    /// Whether this cycle is plain in order to be measured.
    fn is_plain_cycle(&mut self) -> bool {
        self.until_plain = self.until_plain.saturating_sub(1);
        if self.experience.is_some()
            && self.plain == 0
            && self.until_plain == 0
            && self.times.are_comparable()
        {
            let known = self.experience.as_ref().is_some_and(Experience::knows_costs);
            (self.plain, self.until_plain) =
                (PLAIN_CYCLES, if known { PLAIN_PERIOD } else { FIRST_PLAIN_PERIOD });
        }
        let is_plain = self.plain > 0;
        self.plain = self.plain.saturating_sub(1);
        is_plain
    }

    /// The number of drafts, 0 included, that brings the most tokens for the time, and how many times as many as no drafts. Each of
    /// the `others` adds a row to the pass and has a token of it: the more there are, the less is left to be gained.
    fn best(&self, row: f64, cost_of_draft: f64, others: usize) -> (usize, f64) {
        let others = others as f64;
        let (tokens, cost) = (others + 1.0, 1.0 + row * others);
        let gain = |depth: usize| {
            let brought = (others + self.expected(depth)) / (cost + cost_of_draft * depth as f64);
            brought * cost / tokens
        };
        let depths = 0..=self.acceptance.len();
        depths.map(|depth| (depth, gain(depth))).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 1.0))
    }

    /// What a further row of a pass costs, as far as it is known.
    fn row(&self) -> f64 {
        self.experience.as_ref().map_or(ROW, |experience| experience.row.median_with(ROW))
    }

    /// What a draft and its row cost, as far as it is known.
    fn cost_of_draft(&self) -> f64 {
        self.experience.as_ref().map_or(ROW + DRAFT, Experience::cost_of_draft)
    }

    /// Expected tokens of a cycle.
    fn expected(&self, depth: usize) -> f64 {
        let mut chance = 1.0;
        let accepted = self.acceptance[..depth].iter().map(|acceptance| {
            chance *= acceptance.mean;
            chance
        });
        1.0 + accepted.sum::<f64>()
    }

    /// Learns from a cycle in which `accepted` of `drafted` drafts were accepted. How long a pass took that served others as well
    /// says nothing of drafts.
    pub(crate) fn observe(&mut self, drafted: usize, accepted: usize, times: Option<CycleTimes>) {
        for position in 0..self.acceptance.len() {
            if position < drafted.min(accepted + 1) {
                let value = if position < accepted { 1.0 } else { 0.0 };
                self.acceptance[position].observe(value, MEMORY);
                if let Some(experience) = &mut self.experience {
                    experience.observe_draft(position, value);
                }
            } else if position >= drafted && drafted > 0 && position > 0 {
                let before = self.acceptance[position - 1].mean;
                let untried = &mut self.acceptance[position].mean;
                *untried += HOPE * (before - *untried);
            }
        }
        match (times, &mut self.experience) {
            (Some(times), Some(experience)) => self.times.observe(drafted, times, experience),
            // Those before and after it are no neighbours.
            _ => self.times = Times::default(),
        }
    }

    /// Learns from a cycle that checked a copied block of `length` tokens, which `drafts` drafts had confirmed, and accepted
    /// `accepted` of them. What counts is what drafting, or plain decoding where that is better, would have made of the same
    /// time.
    pub(crate) fn observe_copy(&mut self, drafts: usize, length: usize, accepted: usize) {
        self.times = Times::default();
        let draft = self.experience.as_ref().map_or(DRAFT, |known| known.draft.median_with(DRAFT));
        let (_, otherwise) = self.best(self.row(), self.cost_of_draft(), 0);
        let cost = 1.0 + self.row() * length as f64 + draft * drafts as f64;
        let gained = (1 + accepted) as f64 - otherwise * cost;
        self.copied = (self.copied + gained).min(COPY_CREDIT);
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
        Pace::measured(most, Experience::default())
    }

    /// Runs cycles in which so many drafts would be accepted; costs are in plain passes. Returns the depths.
    fn run(pace: &mut Pace, cycles: usize, accepted: usize, draft: f64, row: f64) -> Vec<usize> {
        let mut depths = Vec::new();
        for _ in 0..cycles {
            let depth = pace.depth(0);
            let times =
                CycleTimes { check: PLAIN * (1.0 + row * depth as f64), draft: PLAIN * draft * depth as f64 };
            pace.observe(depth, accepted.min(depth), Some(times));
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
        assert!(count(&depths[10..], 3) > 170, "{depths:?}");
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
        assert!(count(&depths[1800..], 3) > 180, "{depths:?}");
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
        pace.depth(0);
        pace.observe(3, 3, Some(CycleTimes { check: PLAIN * 100.0, draft: PLAIN }));
        let depths = run(&mut pace, 20, 3, 0.15, 0.1);
        assert!(count(&depths, 0) <= PLAIN_CYCLES as usize, "{depths:?}");
    }

    #[test]
    fn the_next_answer_knows_what_passes_cost() {
        let mut first = fresh(3);
        run(&mut first, 100, 3, 0.2, 0.1);
        let experience = first.into_experience().unwrap();
        let depths = run(&mut Pace::measured(3, experience.clone()), 30, 3, 0.2, 0.1);
        assert_eq!(count(&depths, 0), 0, "{depths:?}");
        assert!(count(&depths, 3) >= 28, "{depths:?}");
        // Drafts are expected to be good now, and given up when they are not.
        let depths = run(&mut Pace::measured(3, experience), 60, 0, 0.2, 0.1);
        assert!(depths.iter().sum::<usize>() <= 15 && count(&depths[10..], 0) == 50, "{depths:?}");
    }

    #[test]
    fn costs_that_were_wrong_are_found_out() {
        let mut experience = Experience::default();
        (0..COMPARISONS).for_each(|_| experience.row.observe(3.0, COMPARISONS));
        let depths = run(&mut Pace::measured(3, experience), 3000, 3, 0.2, 0.1);
        assert!(count(&depths[2500..], 3) > 400, "{depths:?}");
    }

    #[test]
    fn a_machine_that_slows_down_changes_no_cost() {
        let mut pace = fresh(3);
        run(&mut pace, 100, 3, 0.2, 0.1);
        let mut next = Pace::measured(3, pace.into_experience().unwrap());
        for _ in 0..200 {
            let depth = next.depth(0) as f64;
            let slow = 3.0 * PLAIN;
            let times = CycleTimes { check: slow * (1.0 + 0.1 * depth), draft: slow * 0.2 * depth };
            next.observe(depth as usize, depth as usize, Some(times));
        }
        let experience = next.into_experience().unwrap();
        assert!((1.89..1.91).contains(&(1.0 + 3.0 * experience.cost_of_draft())), "{experience:?}");
    }

    #[test]
    fn the_more_others_a_pass_serves_the_fewer_drafts_are_made() {
        let mut pace = fresh(3);
        run(&mut pace, 200, 3, 0.15, 0.2);
        let mut last = 3;
        for others in [0, 1, 3, 7, 15] {
            let depth = pace.clone().depth(others);
            assert!(depth <= last, "{depth} beside {others}");
            last = depth;
        }
        assert_eq!((pace.clone().depth(1), last), (3, 0));
    }

    #[test]
    fn in_company_drafts_are_given_up_and_tried_again_and_costs_stay() {
        let mut pace = fresh(3);
        run(&mut pace, 100, 3, 0.2, 0.1);
        let cost = pace.cost_of_draft();
        let mut depths = |cycles: usize, accepted: usize| -> Vec<usize> {
            let cycle = |_| {
                let depth = pace.depth(1);
                pace.observe(depth, accepted.min(depth), None);
                depth
            };
            (0..cycles).map(cycle).collect()
        };
        assert!(count(&depths(400, 0)[50..], 0) > 340);
        assert!(count(&depths(2000, 3)[1900..], 3) == 100);
        assert_eq!(pace.cost_of_draft(), cost);
    }

    #[test]
    fn assumed_costs_make_the_depths_repeatable() {
        let depths = |draft| run(&mut Pace::assumed(3), 300, 2, draft, 0.1);
        assert_eq!(depths(0.1), depths(5.0));
    }

    #[test]
    fn copying_ends_where_drafts_make_more_of_the_time() {
        let mut pace = fresh(3);
        run(&mut pace, 100, 3, 0.15, 0.1);
        // Better than plain decoding, and worse than three drafts that are all accepted.
        pace.observe_copy(0, 8, 1);
        assert!(!pace.copying_pays());
        let mut pace = fresh(3);
        run(&mut pace, 100, 3, 0.15, 0.1);
        (0..10).for_each(|_| pace.observe_copy(0, 8, 8));
        assert!(pace.copying_pays());
    }

    #[test]
    fn copying_ends_when_it_has_cost_a_pass() {
        let mut pace = Pace::assumed(0);
        pace.observe_copy(0, 8, 0);
        assert!(!pace.copying_pays());
        let mut pace = Pace::assumed(0);
        pace.observe_copy(0, 8, 8);
        (0..2).for_each(|_| pace.observe_copy(0, 8, 0));
        assert!(pace.copying_pays());
        pace.observe_copy(0, 8, 0);
        assert!(!pace.copying_pays());
    }
}
