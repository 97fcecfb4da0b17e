//! The decode loop of a speculative answer, as steps that ask for rows of logits and never run a model.
//!
//! A cycle: [`SpeculativeDecoder::begin`] takes or draws the first token of the window (the primary) and says whether
//! the window continues with a copied block or with drafts; [`SpeculativeDecoder::draft`] adds one draft for each row of
//! the head; the caller forwards [`SpeculativeDecoder::window`] in one pass; [`SpeculativeDecoder::verify`] reads the
//! target's rows as far as the first rejection and says what to keep. Order of draws: the primary unless one is pending,
//! one per draft, one uniform per examined draft, then one for correction or bonus. Greedy decoding draws nothing.

use super::acceptance::{Draft, Proposal, TargetRows, WindowVerdict, verify_drafts};
use super::{
    Confidence, Correction, CycleCosts, DepthControl, DepthDecision, FinishReason, SpeculationStats,
    SpeculativeConfig,
};
use crate::{
    ContextCopy, CopySettings, RandomState, RandomStream, SamplingError, Shaper, SparseDistribution,
    TokenCounts,
};

/// One answer in progress.
#[derive(Debug, Clone)]
pub struct SpeculativeDecoder {
    target: Shaper,
    draft: Shaper,
    stream: RandomStream,
    counts: TokenCounts,
    copy: ContextCopy,
    depth: DepthControl,
    max_tokens: usize,
    stop_tokens: Vec<u32>,
    correction: Correction,
    tokens: Vec<u32>,
    pending: Option<u32>,
    finished: Option<FinishReason>,
    cycle: Option<Cycle>,
    stats: SpeculationStats,
}

/// The window that is being built or verified.
#[derive(Debug, Clone)]
struct Cycle {
    /// The primary, then drafts or the copied block.
    window: Vec<u32>,
    /// Proposals of the drafts; empty for a block.
    proposals: Vec<Proposal>,
    /// Drafts still wanted.
    wanted: usize,
    copied: bool,
    /// A block that waits for drafts.
    held: Vec<u32>,
}

/// What a cycle needs from the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Draft up to `depth` tokens after `primary` (possibly none), then verify.
    Draft {
        /// First token of the window.
        primary: u32,
        /// Most drafts.
        depth: usize,
    },
    /// Verify the window, which already holds a block copied from the prompt.
    Copy {
        /// First token of the window.
        primary: u32,
        /// Tokens in the block.
        block: usize,
        /// How far the match extended beyond its n-gram.
        extension: usize,
    },
    /// The answer is complete. A [`SpeculativeDecoder::pending`] token has not been forwarded.
    Finished(FinishReason),
}

/// A drafted token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DraftStep {
    /// The token; the head's next row follows it.
    pub token: u32,
    /// Whether another draft is wanted.
    pub more: bool,
    /// Why, if a depth policy decided.
    pub decision: Option<DepthDecision>,
}

/// Which row the next [`SpeculativeDecoder::begin`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRow {
    /// None: a token is pending.
    None,
    /// This row of the verified window.
    Window(usize),
    /// The row after this token, which must be forwarded behind the kept rows first.
    AfterForwarding(u32),
}

/// The result of a verified window.
#[derive(Debug, Clone, PartialEq)]
pub struct CycleOutcome {
    /// Drafts or copied tokens accepted.
    pub accepted: usize,
    /// Rows of the window that caches must keep: the primary and the accepted tokens.
    pub keep: usize,
    /// Acceptance probability of each examined token (1 or 0 for greedy drafts).
    pub probabilities: Vec<f64>,
    /// Token drawn in place of a rejected one.
    pub correction: Option<u32>,
    /// Token drawn after a fully accepted window.
    pub bonus: Option<u32>,
    /// Where the next cycle continues.
    pub next_row: NextRow,
    /// Set if the answer is complete.
    pub finished: Option<FinishReason>,
}

impl SpeculativeDecoder {
    /// A decoder at the start of an answer to `prompt`. Errors name an invalid sampling parameter.
    pub fn new(config: SpeculativeConfig, prompt: &[u32]) -> Result<Self, SamplingError> {
        let stream = RandomStream::for_rule(config.target.rule, config.target.seed);
        let enabled = config.copy.enabled && !config.target.has_penalties();
        Ok(Self {
            stream,
            copy: ContextCopy::new(CopySettings { enabled, ..config.copy }, prompt),
            stats: SpeculationStats::new(config.depth.most()),
            target: Shaper::new(config.target)?,
            draft: Shaper::new(config.draft)?,
            counts: TokenCounts::default(),
            depth: config.depth,
            max_tokens: config.max_tokens,
            stop_tokens: config.stop_tokens,
            correction: config.correction,
            tokens: Vec::new(),
            pending: None,
            finished: None,
            cycle: None,
        })
    }

    /// Tokens of the answer so far, a stop token included. Every call may append to it.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// A token of the answer that no forward pass has read yet. If it remains at the end, forward it before the state is
    /// stored, or the stored state is one token short of the answer.
    pub fn pending(&self) -> Option<u32> {
        self.pending
    }

    /// Tokens to forward in one pass: the primary, then drafts or the copied block. Empty between cycles.
    pub fn window(&self) -> &[u32] {
        self.cycle.as_ref().map_or(&[], |cycle| &cycle.window)
    }

    /// Counts so far.
    pub fn stats(&self) -> &SpeculationStats {
        &self.stats
    }

    /// Context copy, for its counters and state.
    pub fn copy(&self) -> &ContextCopy {
        &self.copy
    }

    /// How many tokens a cycle drafts, with what a policy has learned.
    pub fn depth(&self) -> &DepthControl {
        &self.depth
    }

    /// Fixes the depth of later cycles, at most the depth the decoder was made with. 0 decodes plainly.
    pub fn fix_depth(&mut self, depth: usize) {
        self.depth = DepthControl::Fixed(depth.min(self.stats.drafted_by_position.len()));
    }

    /// Position of the random stream.
    pub fn random_state(&self) -> RandomState {
        self.stream.state()
    }

    /// Switches context copy off for the rest of the answer.
    pub fn disable_copy(&mut self) {
        self.copy.disable();
    }

    /// Gives up the current cycle: its primary stays in the answer and becomes pending, drafts are forgotten.
    pub fn abandon(&mut self) {
        if let Some(cycle) = self.cycle.take() {
            self.pending = cycle.window.first().copied();
        }
    }

    /// Starts a cycle. `row` holds the target's logits after the last token; it is read only if no token is pending.
    pub fn begin(&mut self, row: &[f32]) -> Result<Plan, SamplingError> {
        if self.cycle.is_some() {
            return Err(SamplingError::StepOutOfOrder { step: "begin", expected: "verify or abandon" });
        }
        if self.max_tokens == 0 {
            self.finished = Some(FinishReason::Length);
        }
        if let Some(reason) = self.finished {
            return Ok(Plan::Finished(reason));
        }
        let primary = match self.pending.take() {
            Some(token) => token,
            None => {
                let token = self.target.draw(row, &self.counts, &mut self.stream)?;
                self.push(token);
                token
            }
        };
        if let Some(reason) = self.finished {
            self.pending = Some(primary);
            return Ok(Plan::Finished(reason));
        }
        Ok(self.plan(primary))
    }

    /// Tokens that the answer may still get.
    fn room(&self) -> usize {
        self.max_tokens - self.tokens.len()
    }

    fn most_drafts(&self) -> usize {
        self.depth.most().min(self.room())
    }

    fn plan(&mut self, primary: u32) -> Plan {
        let depth = self.most_drafts();
        let block = if depth > 0 { self.copy.propose(&self.tokens, self.room()) } else { None };
        let mut cycle = Cycle {
            window: vec![primary],
            proposals: Vec::new(),
            wanted: depth,
            copied: false,
            held: Vec::new(),
        };
        let plan = match block {
            Some(block) => {
                cycle.wanted = 0;
                cycle.copied = true;
                cycle.window.extend(&block.tokens);
                Plan::Copy { primary, block: block.tokens.len(), extension: block.extension }
            }
            None => Plan::Draft { primary, depth },
        };
        self.cycle = Some(cycle);
        plan
    }

    /// Makes a planned block wait: the cycle goes on with drafts, of which this many are wanted, and
    /// [`Self::release_block`] compares them. Changes nothing without a block. Greedy answers only: drafts that are drawn for a
    /// block and then dropped would take random numbers that the reference does not take.
    pub fn hold_block(&mut self) -> usize {
        let depth = self.most_drafts();
        let Some(cycle) = self.cycle.as_mut().filter(|cycle| cycle.copied) else { return 0 };
        cycle.held = cycle.window.split_off(1);
        (cycle.wanted, cycle.copied) = (depth, false);
        depth
    }

    /// Puts a held block in the place of the drafts if it goes on where they lead, or if there are none.
    pub fn release_block(&mut self) {
        let Some(cycle) = self.cycle.as_mut() else { return };
        let held = std::mem::take(&mut cycle.held);
        if held.len() >= cycle.window.len() && held.starts_with(&cycle.window[1..]) {
            cycle.window.truncate(1);
            cycle.window.extend(held);
            cycle.proposals.clear();
            (cycle.wanted, cycle.copied) = (0, true);
        }
    }

    /// Draws the next draft from a row of the head's logits.
    pub fn draft(&mut self, row: &[f32]) -> Result<DraftStep, SamplingError> {
        let Some(cycle) = self.cycle.as_mut().filter(|cycle| cycle.wanted > 0) else {
            return Err(SamplingError::StepOutOfOrder { step: "draft", expected: "begin or verify" });
        };
        // Drafts are proposals: penalties only shape the target that judges them.
        let nothing_counted = TokenCounts::default();
        let (token, proposal) = if self.draft.config().is_greedy() {
            (self.draft.argmax(row, &nothing_counted)?, Proposal::Point)
        } else {
            let distribution = self.draft.shape(row, &nothing_counted)?;
            (distribution.draw(&mut self.stream), Proposal::Drawn(distribution.clone()))
        };
        cycle.window.push(token);
        cycle.proposals.push(proposal);
        cycle.wanted -= 1;
        let decision = match &self.depth {
            DepthControl::Fixed(_) => None,
            DepthControl::ExpectedValue(policy) => {
                let drafted = cycle.proposals.len();
                Some(policy.decide(drafted, drafted + cycle.wanted, Confidence::of(row)?))
            }
        };
        if decision.is_some_and(|decision| !decision.continues()) {
            cycle.wanted = 0;
        }
        Ok(DraftStep { token, more: cycle.wanted > 0, decision })
    }

    /// Judges the window. `rows(i)` are the target's logits after the window's token `i`; they are asked for in order and
    /// not beyond the first rejection. `costs` are this cycle's times, for a policy that learns from them.
    ///
    /// A caller may verify before all wanted drafts are made. An error (a faulty row) ends the answer.
    pub fn verify<'r>(
        &mut self,
        mut rows: impl FnMut(usize) -> &'r [f32],
        costs: Option<CycleCosts>,
    ) -> Result<CycleOutcome, SamplingError> {
        let Some(mut cycle) = self.cycle.take() else {
            return Err(SamplingError::StepOutOfOrder { step: "verify", expected: "begin" });
        };
        let verdict = self.judge(&mut cycle, &mut rows)?;
        if cycle.copied {
            Ok(self.commit_block(&cycle, verdict))
        } else {
            self.commit_drafts(&cycle, verdict, &mut rows, costs)
        }
    }

    fn judge<'r>(
        &mut self,
        cycle: &mut Cycle,
        rows: &mut impl FnMut(usize) -> &'r [f32],
    ) -> Result<WindowVerdict, SamplingError> {
        let drafted = &cycle.window[1..];
        let stop_tokens = &self.stop_tokens;
        // MTPLX examines a copied block to its end and cuts it at a stop afterwards.
        let ends_after = |token: u32| !cycle.copied && stop_tokens.contains(&token);
        let counts =
            if self.target.config().has_penalties() { self.counts.clone() } else { TokenCounts::default() };
        let mut target = Target { shaper: &mut self.target, counts, rows };
        if target.shaper.config().is_greedy() {
            return target.accept_greedy(drafted, ends_after);
        }
        let proposals =
            std::mem::take(&mut cycle.proposals).into_iter().chain(std::iter::repeat(Proposal::Point));
        let drafts: Vec<Draft> =
            drafted.iter().zip(proposals).map(|(&token, proposal)| Draft { token, proposal }).collect();
        verify_drafts(&drafts, &mut target, &mut self.stream, ends_after)
    }

    fn commit_block(&mut self, cycle: &Cycle, verdict: WindowVerdict) -> CycleOutcome {
        let block = &cycle.window[1..];
        let mut accepted = verdict.accepted;
        let mut correction = verdict.correction;
        if let Some(stop) = block[..accepted].iter().position(|token| self.stop_tokens.contains(token)) {
            accepted = stop + 1;
            correction = None;
        }
        block[..accepted].iter().for_each(|&token| self.push(token));
        if let Some(token) = correction {
            self.push(token);
            self.pending = Some(token);
            self.stats.corrections += 1;
        }
        self.copy.observe(accepted, block.len(), self.tokens.len());
        self.stats.verify_passes += 1;
        CycleOutcome {
            accepted,
            keep: 1 + accepted,
            probabilities: verdict.probabilities,
            correction,
            bonus: None,
            next_row: if correction.is_some() { NextRow::None } else { NextRow::Window(accepted) },
            finished: self.finished,
        }
    }

    fn commit_drafts<'r>(
        &mut self,
        cycle: &Cycle,
        verdict: WindowVerdict,
        rows: &mut impl FnMut(usize) -> &'r [f32],
        costs: Option<CycleCosts>,
    ) -> Result<CycleOutcome, SamplingError> {
        let drafted = &cycle.window[1..];
        let accepted = verdict.accepted;
        self.stats.count_window(drafted.len(), accepted);
        if let (DepthControl::ExpectedValue(policy), false) = (&mut self.depth, drafted.is_empty()) {
            policy.observe(drafted.len(), accepted, costs);
        }
        drafted[..accepted].iter().for_each(|&token| self.push(token));
        let mut outcome = CycleOutcome {
            accepted,
            keep: 1 + accepted,
            probabilities: verdict.probabilities,
            correction: verdict.correction,
            bonus: None,
            next_row: NextRow::Window(accepted),
            finished: None,
        };
        if accepted < drafted.len() && self.finished.is_none() {
            self.stats.rejected += 1;
        }
        if let Some(token) = outcome.correction {
            self.push(token);
            self.stats.corrections += 1;
            outcome.next_row = match self.correction {
                Correction::Pending => {
                    self.pending = Some(token);
                    NextRow::None
                }
                Correction::Reforwarded => NextRow::AfterForwarding(token),
            };
        } else if accepted == drafted.len() && self.finished.is_none() && self.tokens.len() < self.max_tokens
        {
            let token = self.target.draw(rows(accepted), &self.counts, &mut self.stream)?;
            self.push(token);
            self.pending = Some(token);
            self.stats.bonus += 1;
            outcome.bonus = Some(token);
            outcome.next_row = NextRow::None;
        }
        outcome.finished = self.finished;
        Ok(outcome)
    }

    /// Appends a token to the answer, which a stop token or the last allowed one completes.
    fn push(&mut self, token: u32) {
        self.tokens.push(token);
        self.counts.record(token);
        if self.stop_tokens.contains(&token) {
            self.finished = Some(FinishReason::Stop);
        } else if self.tokens.len() >= self.max_tokens {
            self.finished = Some(FinishReason::Length);
        }
    }
}

/// Target distributions of a window, shaped when asked for.
struct Target<'a, R> {
    shaper: &'a mut Shaper,
    /// Tokens before the row, if penalties want them: the answer, then the accepted drafts.
    counts: TokenCounts,
    rows: R,
}

impl<'r, R: FnMut(usize) -> &'r [f32]> Target<'_, R> {
    fn accept_greedy(
        &mut self,
        drafted: &[u32],
        ends_after: impl Fn(u32) -> bool,
    ) -> Result<WindowVerdict, SamplingError> {
        let mut verdict = WindowVerdict::default();
        for (row, &token) in drafted.iter().enumerate() {
            let matches = self.shaper.argmax((self.rows)(row), &self.counts)? == token;
            verdict.probabilities.push(if matches { 1.0 } else { 0.0 });
            if !matches {
                break;
            }
            verdict.accepted += 1;
            self.counts.record(token);
            if ends_after(token) {
                break;
            }
        }
        Ok(verdict)
    }
}

impl<'r, R: FnMut(usize) -> &'r [f32]> TargetRows for Target<'_, R> {
    fn distribution(&mut self, row: usize) -> Result<&SparseDistribution, SamplingError> {
        self.shaper.shape((self.rows)(row), &self.counts)
    }

    fn accepted(&mut self, token: u32) {
        self.counts.record(token);
    }
}
