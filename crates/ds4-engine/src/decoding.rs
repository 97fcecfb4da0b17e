//! Decodes one answer in cycles: draft, check the window in one pass, keep what was accepted.
//!
//! Decoding without drafts is the same with windows of one token. Which tokens come, and in which order random numbers are
//! drawn, is decided in `ds4-sampling`; here the passes that it asks for are prepared, and what they showed is taken up. The
//! pass itself may be one of several answers: it lies between [`Decoding::begin`] and [`Decoding::settle`].

use std::time::Instant;

use ds4_array::Array;
use ds4_engine_api::{
    EngineError, FinishReason, GenerateRequest, SpeculationMode, SpeculationUsage, Token, TokenLogprob,
    TokenLogprobs,
};
use ds4_sampling::speculative::{
    self, Correction, DepthControl, NextRow, Plan, SpeculativeConfig, SpeculativeDecoder,
};
use ds4_sampling::{CopySettings, SamplerConfig, SamplerRule, SamplingError, logprobs};

use crate::model_runner::{ModelRunner, Pass, Segment, Wanted, note};
use crate::pace::{CycleTimes, Experience, Pace};
use crate::state::SequenceState;

pub(crate) struct Decoding {
    decoder: SpeculativeDecoder,
    pace: Option<Pace>,
    depth: usize,
    /// Logits after the newest token, if no token is pending.
    row: Vec<f32>,
    cycle: Cycle,
    /// Logits of the window that was checked last, [rows, V].
    rows: Vec<f32>,
    want_logprobs: Option<usize>,
    /// Tokens after a fully accepted window of drafts. The decoder also counts those of windows without drafts.
    bonus: u64,
    /// Windows of which a token was rejected. The decoder counts the tokens that it draws in the place of one: a greedy answer has
    /// them from the same row, in the next cycle.
    corrections: u64,
    times: Times,
}

/// The cycle whose pass is to be run.
#[derive(Debug, Default)]
struct Cycle {
    /// Tokens of the answer before it, and of the sequence.
    known: usize,
    position: usize,
    /// What is checked: a token that is certain, and drafts or copied tokens.
    window: Vec<u32>,
    drafts: Drafts,
    /// Rounds of copying before it.
    copy_rounds: u64,
}

/// Seconds by kind of work. A pass of several answers counts in each of them.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    draft: f64,
    verify: f64,
    repair: f64,
}

/// What the head drafted in a cycle.
#[derive(Clone, Copy, Debug, Default)]
struct Drafts {
    count: usize,
    seconds: f64,
}

impl Decoding {
    pub(crate) fn new(
        request: &GenerateRequest,
        seed: u64,
        max_tokens: usize,
        rule: ds4_models::SamplerRule,
        has_history: bool,
        experience: Experience,
    ) -> Result<Self, EngineError> {
        let target = sampler_config(request, seed, rule);
        let speculation = request.speculation;
        let copies = speculation.mode.copies();
        let depth = if has_history && speculation.mode.drafts() { speculation.depth } else { 0 };
        let pace = match (speculation.mode, target.is_greedy()) {
            (SpeculationMode::Auto, true) => Some(Pace::measured(depth, experience)),
            (SpeculationMode::Auto, false) => Some(Pace::assumed(depth)),
            _ => None,
        };
        let config = SpeculativeConfig {
            draft: SamplerConfig {
                temperature: if target.is_greedy() { 0.0 } else { 1.0 },
                ..target.clone()
            },
            target,
            // Copying needs room for a block even where the head drafts nothing.
            depth: DepthControl::Fixed(if copies { depth.max(1) } else { depth }),
            copy: CopySettings { enabled: copies, ..CopySettings::default() },
            max_tokens,
            stop_tokens: request.stop_tokens.clone(),
            correction: Correction::Pending,
        };
        let decoder = SpeculativeDecoder::new(config, &request.prompt)
            .map_err(|error| EngineError::Model { reason: error.to_string() })?;
        Ok(Self {
            decoder,
            pace,
            depth,
            row: Vec::new(),
            cycle: Cycle::default(),
            rows: Vec::new(),
            want_logprobs: request.logprobs,
            bonus: 0,
            corrections: 0,
            times: Times::default(),
        })
    }

    /// A chunk of the prompt as part of a pass; after the last one, logits are there to begin with.
    pub(crate) fn prompt<'a>(
        &'a mut self,
        tokens: &'a [u32],
        is_last: bool,
        state: &'a mut SequenceState,
    ) -> Segment<'a> {
        Segment { tokens, state, wanted: Wanted::AfterPrompt(is_last.then_some(&mut self.row)) }
    }

    /// Begins a cycle: drafts, and decides on the window that a pass has to check. A token that is certain by now goes to `out`.
    /// Tells if the answer is complete; then no pass is needed.
    ///
    /// The pass will serve so many `others` as well. Where a seed has to reproduce, they must not matter.
    pub(crate) fn begin(
        &mut self,
        runner: &ModelRunner,
        state: &mut SequenceState,
        others: usize,
        out: &mut dyn FnMut(Vec<Token>),
    ) -> Result<Option<FinishReason>, EngineError> {
        let position = state.tokens();
        let known = self.decoder.tokens().len();
        let plan = self.decoder.begin(&self.row).map_err(|error| failed(error, position))?;
        if self.decoder.tokens().len() > known {
            out(vec![self.token(known, &self.row, position)?]);
        }
        let drafts = match plan {
            Plan::Finished(reason) => return Ok(Some(finish(reason))),
            Plan::Draft { primary, depth } => self.draft(runner, primary, depth, state, others)?,
            Plan::Copy { primary, .. } if self.confirms_blocks() => {
                let most = self.decoder.hold_block();
                let drafts = self.draft(runner, primary, most, state, others)?;
                self.decoder.release_block();
                drafts
            }
            Plan::Copy { .. } => Drafts::default(),
        };
        if let Some(history) = state.history.as_mut().filter(|history| history.has_many_noted()) {
            runner.catch_up(history)?;
        }
        self.cycle.known = self.decoder.tokens().len();
        self.cycle.position = position;
        self.cycle.window.clear();
        self.cycle.window.extend_from_slice(self.decoder.window());
        self.cycle.drafts = drafts;
        self.cycle.copy_rounds = self.decoder.copy().counters().rounds;
        if self.cycle.window.len() > 1 {
            state.cache.begin_window();
        }
        Ok(None)
    }

    /// The window as part of a pass.
    pub(crate) fn window<'a>(&'a mut self, state: &'a mut SequenceState) -> Segment<'a> {
        Segment { tokens: &self.cycle.window, state, wanted: Wanted::AfterEach(&mut self.rows) }
    }

    /// Whether the head has to come to the beginning of a block by itself before the block is checked. A wrong block costs more
    /// than a pass, drafts only a part of one; once copying has proven itself, it needs no asking.
    fn confirms_blocks(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::is_measured) && !self.decoder.copy().is_proven()
    }

    /// Lets the head draft after `primary`, as many tokens as pay.
    fn draft(
        &mut self,
        runner: &ModelRunner,
        primary: u32,
        most: usize,
        state: &mut SequenceState,
        others: usize,
    ) -> Result<Drafts, EngineError> {
        let position = state.tokens();
        let depth = match &mut self.pace {
            Some(pace) if pace.is_measured() => pace.depth(others),
            Some(pace) => pace.depth(0),
            None => self.depth,
        };
        let wanted = depth.min(most);
        let (Some(history), true) = (&mut state.history, wanted > 0) else { return Ok(Drafts::default()) };
        let started = Instant::now();
        let (mut token, mut count) = (primary, 0);
        for _ in 0..wanted {
            if !runner.draft(token, history, &mut self.rows)? {
                break;
            }
            let step = self.decoder.draft(&self.rows).map_err(|error| failed(error, position))?;
            (token, count) = (step.token, count + 1);
            if !step.more {
                break;
            }
        }
        runner.end_drafts(history)?;
        let seconds = started.elapsed().as_secs_f64();
        self.times.draft += seconds;
        Ok(Drafts { count, seconds })
    }

    /// Ends a cycle after its pass: keeps what the decoder accepts and takes the rest back. At least one token goes to `out`.
    /// Tells if the answer is complete.
    pub(crate) fn settle(
        &mut self,
        state: &mut SequenceState,
        pass: &Pass,
        streams: Option<&Array>,
        out: &mut dyn FnMut(Vec<Token>),
    ) -> Result<Option<FinishReason>, EngineError> {
        self.times.verify += pass.seconds;
        let Cycle { known, position, .. } = self.cycle;
        let (rows, length) = (&self.rows, self.cycle.window.len());
        let width = rows.len() / length;
        let outcome = self.decoder.verify(|i| &rows[i * width..(i + 1) * width], None).map_err(|error| {
            let faulty =
                rows.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY).unwrap_or(0) / width;
            failed(error, position + faulty + 1)
        })?;
        let mut tokens = Vec::with_capacity(length);
        let all = (known..self.decoder.tokens().len()).enumerate().try_for_each(|(i, at)| {
            tokens.push(self.token(at, &rows[i * width..(i + 1) * width], position + i + 1)?);
            Ok(())
        });
        // Those before a faulty one, too.
        out(tokens);
        all?;

        let started = Instant::now();
        state
            .cache
            .commit_window(outcome.keep)
            .map_err(|error| EngineError::Model { reason: error.to_string() })?;
        if let Some(history) = &mut state.history {
            note(history, streams, &self.cycle.window[..outcome.keep])?;
        }
        self.times.repair += started.elapsed().as_secs_f64();

        if let NextRow::Window(i) = outcome.next_row {
            self.row.clear();
            self.row.extend_from_slice(&self.rows[i * width..(i + 1) * width]);
        }
        self.bonus += u64::from(length > 1 && outcome.bonus.is_some());
        // A window that a stop has cut short was not rejected.
        let goes_on = outcome.correction.is_some() || outcome.finished.is_none();
        self.corrections += u64::from(outcome.accepted + 1 < length && goes_on);
        self.learn(outcome.accepted, pass);
        Ok(outcome.finished.map(finish))
    }

    /// Tells the policy how a cycle went, in which so many drafts or copied tokens were accepted.
    fn learn(&mut self, accepted: usize, pass: &Pass) {
        let Some(pace) = &mut self.pace else { return };
        let Cycle { drafts, copy_rounds, ref window, .. } = self.cycle;
        let length = window.len() - 1;
        if self.decoder.copy().counters().rounds > copy_rounds {
            pace.observe_copy(drafts.count, length, accepted);
            if !pace.copying_pays() {
                self.decoder.disable_copy();
            }
        } else {
            let times = CycleTimes { check: pass.seconds, draft: drafts.seconds };
            pace.observe(length, accepted, pass.is_alone.then_some(times));
        }
    }

    /// The answer's token `at`, drawn from `row` after `position` tokens.
    fn token(&self, at: usize, row: &[f32], position: usize) -> Result<Token, EngineError> {
        let id = self.decoder.tokens()[at];
        let Some(count) = self.want_logprobs else { return Ok(Token { id, logprobs: None }) };
        let (logprob, top) = logprobs(row, id, count).map_err(|error| failed(error, position))?;
        let top = top.into_iter().map(|(id, logprob)| TokenLogprob { id, logprob }).collect();
        let logprobs = Some(TokenLogprobs { chosen: TokenLogprob { id, logprob }, top });
        Ok(Token { id, logprobs })
    }

    /// What the answer has shown of drafts, if it was measured.
    pub(crate) fn into_experience(self) -> Option<Experience> {
        self.pace?.into_experience()
    }

    /// The answer so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        self.decoder.tokens()
    }

    pub(crate) fn usage(&self) -> SpeculationUsage {
        let (stats, copy) = (self.decoder.stats(), self.decoder.copy().counters());
        SpeculationUsage {
            cycles: stats.drafted_by_position.first().copied().unwrap_or(0),
            drafted: stats.drafted(),
            accepted: stats.accepted(),
            accepted_by_position: stats.accepted_by_position.clone(),
            bonus: self.bonus,
            corrections: self.corrections,
            copy_rounds: copy.rounds,
            copy_drafted: copy.drafted_tokens,
            copied: copy.accepted_tokens,
            verify_passes: stats.verify_passes,
            draft_seconds: self.times.draft,
            verify_seconds: self.times.verify,
            repair_seconds: self.times.repair,
        }
    }
}

fn finish(reason: speculative::FinishReason) -> FinishReason {
    match reason {
        speculative::FinishReason::Stop => FinishReason::Stop,
        speculative::FinishReason::Length => FinishReason::Length,
    }
}

fn sampler_config(request: &GenerateRequest, seed: u64, rule: ds4_models::SamplerRule) -> SamplerConfig {
    let sampling = &request.sampling;
    SamplerConfig {
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: u32::try_from(sampling.top_k).unwrap_or(u32::MAX),
        min_p: sampling.min_p,
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        logit_bias: sampling.logit_bias.clone(),
        seed,
        rule: match rule {
            ds4_models::SamplerRule::Mtplx => SamplerRule::Mtplx,
            ds4_models::SamplerRule::Ds4 => SamplerRule::Ds4,
        },
    }
}

fn failed(error: SamplingError, position: usize) -> EngineError {
    match error {
        SamplingError::NonFiniteLogit { token, value } => {
            EngineError::NonFiniteLogits { position, token, value }
        }
        other => EngineError::Model { reason: other.to_string() },
    }
}
