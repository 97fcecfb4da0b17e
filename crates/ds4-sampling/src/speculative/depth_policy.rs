//! Draft one token deeper only if the expected gain pays for it: MTPLX's expected-value policy.
//!
//! A cycle drafts `base_depth` tokens; before each further one the chance that it will be accepted (product of the
//! measured acceptance by depth, scaled by the head's confidence in its last draft) must reach its cost in tokens.
//! Acceptance by depth is conditional on all earlier drafts being accepted, as a moving average. Costs start as
//! configured and are replaced by measured ones once both depths have been measured four times.

use super::Confidence;

const ACCEPT_PRIORS: [f64; 3] = [0.92, 0.64, 0.32];
const EWMA: f64 = 0.12;
const MARGIN_CENTER: f64 = 1.0;
const MARGIN_SCALE: f64 = 2.0;
const CONFIDENCE_WEIGHT: f64 = 0.35;
const CALIBRATION_CYCLES: u32 = 4;
const LARGEST_CHANCE: f64 = 0.999;

/// Parameters of the policy; [`DepthSettings::new`] has the values MTPLX serves Qwen with.
#[derive(Debug, Clone, PartialEq)]
pub struct DepthSettings {
    /// Most drafts in a cycle.
    pub max_depth: usize,
    /// Drafts that are made without asking.
    pub base_depth: usize,
    /// Seconds for one more draft.
    pub draft_cost_s: f64,
    /// Seconds for one more row in the verify pass.
    pub extra_verify_cost_s: f64,
    /// Tokens per second that the cost of a draft is measured against.
    pub baseline_tokens_per_s: f64,
    /// Share by which the gain must exceed the cost.
    pub safety_margin: f64,
    /// Least chance of acceptance while costs are only configured.
    pub min_extra_acceptance: f64,
    /// Cycles at the start that draft to full depth.
    pub warmup_cycles: u64,
    /// Every so many cycles a deeper draft is tried regardless; 0 means never.
    pub exploration_interval: u64,
}

impl DepthSettings {
    /// Settings for up to `max_depth` drafts, of which two (or fewer) are made without asking.
    pub fn new(max_depth: usize) -> Self {
        Self {
            max_depth: max_depth.max(1),
            base_depth: max_depth.clamp(1, 2),
            draft_cost_s: 0.002,
            extra_verify_cost_s: 0.0015,
            baseline_tokens_per_s: 40.0,
            safety_margin: 0.10,
            min_extra_acceptance: 0.18,
            warmup_cycles: 4,
            exploration_interval: 32,
        }
    }
}

/// Why the policy continues or stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DepthDecision {
    /// Fewer than `base_depth` drafts so far, or the cycle's last one is made.
    NotAsked,
    /// Warm-up cycle.
    Warmup,
    /// This depth was never drafted.
    Unobserved,
    /// A periodic trial.
    Exploration,
    /// Measured costs are in use and the base depth is measured again.
    RemeasureBase,
    /// The chance of acceptance against the chance that would pay.
    Compared {
        /// Chance that the next draft is accepted.
        expected: f64,
        /// Chance at which it pays.
        required: f64,
    },
}

impl DepthDecision {
    /// Whether to draft one more token.
    pub fn continues(self) -> bool {
        match self {
            Self::NotAsked | Self::Warmup | Self::Unobserved | Self::Exploration => true,
            Self::RemeasureBase => false,
            Self::Compared { expected, required } => expected >= required,
        }
    }
}

/// Measured times of one cycle, for the policy's costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CycleCosts {
    /// Seconds spent drafting.
    pub draft_s: f64,
    /// Seconds of the verify pass.
    pub verify_s: f64,
}

/// The policy with what it has learned.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedValueDepth {
    settings: DepthSettings,
    /// Chance that the draft at a depth is accepted if all before it were.
    acceptance: Vec<f64>,
    attempts: Vec<u64>,
    costs: Vec<MeasuredCost>,
    cycles: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct MeasuredCost {
    draft_s: f64,
    verify_s: f64,
    samples: u32,
}

impl ExpectedValueDepth {
    /// A policy that knows only its priors. Depths beyond the third start from the third's prior.
    pub fn new(settings: DepthSettings) -> Self {
        let depth = settings.max_depth;
        let prior = |at: usize| ACCEPT_PRIORS[at.min(ACCEPT_PRIORS.len() - 1)];
        Self {
            settings,
            acceptance: (0..depth).map(prior).collect(),
            attempts: vec![0; depth],
            costs: vec![MeasuredCost::default(); depth],
            cycles: 0,
        }
    }

    /// The parameters.
    pub fn settings(&self) -> &DepthSettings {
        &self.settings
    }

    /// Acceptance by depth, each conditional on the drafts before it.
    pub fn acceptance(&self) -> &[f64] {
        &self.acceptance
    }

    /// Decides after the draft number `drafted` (counting from 1) of a cycle of at most `cycle_depth`.
    pub fn decide(&self, drafted: usize, cycle_depth: usize, confidence: Confidence) -> DepthDecision {
        let last = cycle_depth.min(self.settings.max_depth);
        if drafted < self.settings.base_depth || drafted >= last {
            return DepthDecision::NotAsked;
        }
        let interval = self.settings.exploration_interval;
        let (here, next) = (self.costs[drafted - 1], self.costs[drafted]);
        let measured = here.samples >= CALIBRATION_CYCLES && next.samples >= CALIBRATION_CYCLES;
        if measured && interval > 0 && self.cycles.is_multiple_of(2 * interval) {
            return DepthDecision::RemeasureBase;
        }
        if self.cycles < self.settings.warmup_cycles {
            return DepthDecision::Warmup;
        }
        if self.attempts[drafted] == 0 {
            return DepthDecision::Unobserved;
        }
        if interval > 0 && self.cycles > 0 && self.cycles.is_multiple_of(interval) {
            return DepthDecision::Exploration;
        }
        let prefix: f64 = self.acceptance[..drafted].iter().fold(1.0, |product, p| product * p);
        let expected =
            (prefix * self.acceptance[drafted] * confidence_factor(confidence)).clamp(0.0, LARGEST_CHANCE);
        DepthDecision::Compared {
            expected,
            required: self.required(drafted, measured.then_some((here, next))),
        }
    }

    fn required(&self, drafted: usize, measured: Option<(MeasuredCost, MeasuredCost)>) -> f64 {
        let settings = &self.settings;
        let margin = 1.0 + settings.safety_margin;
        match measured {
            None => {
                let extra_s = settings.draft_cost_s + settings.extra_verify_cost_s;
                (extra_s * settings.baseline_tokens_per_s * margin).max(settings.min_extra_acceptance)
            }
            Some((here, next)) => {
                let here_s = here.draft_s + here.verify_s;
                let extra_s = next.draft_s + next.verify_s - here_s;
                let mut tokens = 1.0;
                let mut prefix = 1.0;
                for p in &self.acceptance[..drafted] {
                    prefix *= p;
                    tokens += prefix;
                }
                (extra_s * (tokens / here_s) * margin).max(0.0)
            }
        }
    }

    /// Learns from a cycle that drafted `attempted` tokens of which `accepted` were accepted.
    ///
    /// Drafts after the first rejection were not tested and teach nothing.
    pub fn observe(&mut self, attempted: usize, accepted: usize, costs: Option<CycleCosts>) {
        let attempted = attempted.clamp(1, self.settings.max_depth);
        let accepted = accepted.min(attempted);
        self.cycles += 1;
        if let Some(costs) = costs {
            self.costs[attempted - 1].learn(costs);
        }
        for depth in 0..attempted {
            self.attempts[depth] += 1;
            if depth <= accepted {
                let hit = if accepted > depth { 1.0 } else { 0.0 };
                self.acceptance[depth] = (1.0 - EWMA) * self.acceptance[depth] + EWMA * hit;
            }
        }
    }
}

impl MeasuredCost {
    /// The minimum of the first four samples, since a first run pays start-up costs; a moving average from then on.
    fn learn(&mut self, costs: CycleCosts) {
        let usable = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        if !usable(costs.draft_s) || !usable(costs.verify_s) || costs.verify_s == 0.0 {
            return;
        }
        self.samples += 1;
        let calibrating = self.samples <= CALIBRATION_CYCLES;
        let first = self.samples == 1;
        let learn = |known: &mut f64, seconds: f64| {
            *known = match (first, calibrating) {
                (true, _) => seconds,
                (false, true) => known.min(seconds),
                (false, false) => *known + EWMA * (seconds - *known),
            };
        };
        learn(&mut self.draft_s, costs.draft_s);
        learn(&mut self.verify_s, costs.verify_s);
    }
}

/// Between 0.25 and 1.75; 1 for a head that is neither sure nor unsure.
fn confidence_factor(confidence: Confidence) -> f64 {
    let margin = ((confidence.top2_margin - MARGIN_CENTER) / MARGIN_SCALE).tanh();
    let top = 2.0 * confidence.top1_probability.clamp(0.0, 1.0) - 1.0;
    (1.0 + CONFIDENCE_WEIGHT * (0.75 * margin + 0.25 * top)).clamp(0.25, 1.75)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SURE: Confidence = Confidence { top2_margin: 9.0, top1_probability: 1.0 };

    fn past_warmup(accepted: usize) -> ExpectedValueDepth {
        let mut policy = ExpectedValueDepth::new(DepthSettings::new(3));
        (0..5).for_each(|_| policy.observe(3, accepted, None));
        policy
    }

    #[test]
    fn a_head_that_is_right_drafts_deeper_and_one_that_is_wrong_does_not() {
        assert!(past_warmup(3).decide(2, 3, SURE).continues());
        assert!(!past_warmup(0).decide(2, 3, SURE).continues());
        assert_eq!(past_warmup(0).decide(1, 3, SURE), DepthDecision::NotAsked);
    }

    #[test]
    fn drafts_behind_a_rejection_teach_nothing() {
        let policy = past_warmup(0);
        assert!(policy.acceptance()[0] < 0.6);
        assert_eq!(policy.acceptance()[1..], [0.64, 0.32]);
    }

    #[test]
    fn measured_costs_replace_configured_ones() {
        let mut policy = past_warmup(3);
        let slow = CycleCosts { draft_s: 0.5, verify_s: 0.5 };
        let fast = CycleCosts { draft_s: 0.001, verify_s: 0.001 };
        for _ in 0..4 {
            policy.observe(2, 2, Some(fast));
            policy.observe(3, 3, Some(slow));
        }
        assert!(!policy.decide(2, 3, SURE).continues(), "a third draft that costs a second does not pay");
    }

    #[test]
    fn a_deeper_draft_is_tried_from_time_to_time() {
        let mut policy = past_warmup(0);
        let tried = (0..64).filter(|_| {
            let trial = policy.decide(2, 3, SURE) == DepthDecision::Exploration;
            policy.observe(2, 0, None);
            trial
        });
        assert_eq!(tried.count(), 2);
    }
}
