//! Context copy: drafts taken from the prompt where the answer repeats it, and the bookkeeping that stops when that
//! does not pay.
//!
//! The last tokens of the text are looked up in an index of the prompt; what followed there is proposed as a block and
//! verified in one pass as a point-mass draft. Rules of MTPLX 2.12 (`context_copy` and the batched lane of its generator):
//! a longer match earns a longer block; blocks are short until two rounds have shown that copying works (probation); a
//! moving average of the accepted share below 0.35 suspends copying, each time for twice as many tokens.
//! Left out: MTPLX's opt-in fixed blocks and fuzzy anchors.

mod ngram_index;
mod settings;

pub use ngram_index::{Match, NgramIndex};
pub use settings::{CopySettings, block_length};

const EMA_START: f64 = 0.5;
const EMA_KEPT: f64 = 0.7;
/// Not `1.0 - EMA_KEPT`, which is a different double; thresholds must be met exactly when the reference's are.
const EMA_ADDED: f64 = 0.3;
const PROVEN_ROUNDS: u32 = 2;
const PROVEN_EMA: f64 = 0.5;
const JUDGED_ROUNDS: u32 = 3;
const SUSPEND_BELOW: f64 = 0.35;
const PAYING_SHARE: f64 = 0.5;
const FIRST_BACKOFF: usize = 64;
const LONGEST_BACKOFF: usize = 4096;

/// A block of prompt tokens proposed as the continuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyBlock {
    /// The proposed tokens, at least one.
    pub tokens: Vec<u32>,
    /// How many tokens beyond the n-gram matched backwards.
    pub extension: usize,
}

/// Counts of context copy over one answer, named as in the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyCounters {
    /// Look-ups.
    pub probes: u64,
    /// Blocks verified.
    pub rounds: u64,
    /// Tokens in those blocks.
    pub drafted_tokens: u64,
    /// Blocks of which at least one token was accepted.
    pub accepted_blocks: u64,
    /// Accepted tokens.
    pub accepted_tokens: u64,
    /// Times copying was suspended.
    pub suspensions: u64,
}

/// Proposes blocks for one answer and learns from their acceptance.
#[derive(Debug, Clone)]
pub struct ContextCopy {
    settings: CopySettings,
    index: NgramIndex,
    active: bool,
    ema: f64,
    rounds_judged: u32,
    suspended_until: usize,
    backoff: usize,
    counters: CopyCounters,
}

impl ContextCopy {
    /// Indexes the prompt. Settings out of range are raised to their floor (see [`CopySettings::repaired`]).
    pub fn new(settings: CopySettings, prompt: &[u32]) -> Self {
        let settings = settings.repaired();
        let indexed: &[u32] = if settings.enabled { prompt } else { &[] };
        Self {
            index: NgramIndex::new(indexed, settings.ngram, settings.ngram_max),
            active: settings.enabled,
            settings,
            ema: EMA_START,
            rounds_judged: 0,
            suspended_until: 0,
            backoff: FIRST_BACKOFF,
            counters: CopyCounters::default(),
        }
    }

    /// Looks up the end of prompt plus `generated` and proposes a block of at most `room` tokens (at least one if there
    /// is a match). `None` without a match, while suspended and when switched off.
    pub fn propose(&mut self, generated: &[u32], room: usize) -> Option<CopyBlock> {
        if !self.active || self.is_suspended(generated.len()) {
            return None;
        }
        self.counters.probes += 1;
        let prompt = self.index.prompt();
        let found = self.index.find(generated, prompt.len())?;
        if found.extension < self.settings.min_extension {
            return None;
        }
        let length = block_length(found.extension, self.longest_block()).min(room.max(1));
        let tokens = prompt[found.position..].iter().take(length).copied().collect();
        Some(CopyBlock { tokens, extension: found.extension })
    }

    /// Learns that `accepted` of a block of `length` tokens were accepted, leaving `generated` tokens in the answer.
    pub fn observe(&mut self, accepted: usize, length: usize, generated: usize) {
        self.counters.rounds += 1;
        self.counters.drafted_tokens += length as u64;
        self.counters.accepted_tokens += accepted as u64;
        self.counters.accepted_blocks += u64::from(accepted > 0);
        let share = accepted as f64 / length.max(1) as f64;
        self.ema = EMA_KEPT * self.ema + EMA_ADDED * share;
        self.rounds_judged += 1;
        if share >= PAYING_SHARE {
            self.backoff = FIRST_BACKOFF;
        }
        if self.rounds_judged >= JUDGED_ROUNDS && self.ema < SUSPEND_BELOW {
            self.suspended_until = generated + self.backoff;
            self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
            self.ema = EMA_START;
            self.rounds_judged = 0;
            self.counters.suspensions += 1;
        }
    }

    /// Switches copying off for the rest of the answer.
    pub fn disable(&mut self) {
        self.active = false;
    }

    /// False if switched off by settings or [`Self::disable`].
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// True while a suspension lasts, given the number of generated tokens.
    pub fn is_suspended(&self, generated: usize) -> bool {
        generated < self.suspended_until
    }

    /// How many tokens the next suspension would last.
    pub fn backoff_tokens(&self) -> usize {
        self.backoff
    }

    /// What happened so far.
    pub fn counters(&self) -> CopyCounters {
        self.counters
    }

    /// Whether rounds have shown that copying works. Until then blocks are short.
    pub fn is_proven(&self) -> bool {
        self.rounds_judged >= PROVEN_ROUNDS && self.ema >= PROVEN_EMA
    }

    fn longest_block(&self) -> usize {
        if self.is_proven() {
            self.settings.block
        } else {
            self.settings.block.min(self.settings.probation_block)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt() -> Vec<u32> {
        (0..200).collect()
    }

    #[test]
    fn blocks_are_short_until_two_rounds_have_been_accepted() {
        let prompt = prompt();
        let mut copy = ContextCopy::new(CopySettings::default(), &prompt);
        let mut generated = prompt[20..40].to_vec();
        for expected in [8, 8, 24] {
            let block = copy.propose(&generated, 1000).unwrap();
            assert_eq!(block.tokens.len(), expected);
            assert_eq!(block.tokens[0], *generated.last().unwrap() + 1);
            generated.extend(&block.tokens);
            copy.observe(expected, expected, generated.len());
        }
    }

    #[test]
    fn three_rejected_rounds_suspend_and_each_suspension_is_twice_as_long() {
        let mut copy = ContextCopy::new(CopySettings::default(), &prompt());
        let mut now = 10;
        for backoff in [64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert_eq!(copy.backoff_tokens(), backoff);
            for _ in 0..3 {
                assert!(!copy.is_suspended(now));
                copy.observe(0, 8, now);
            }
            assert!(copy.is_suspended(now + backoff - 1));
            now += backoff;
        }
        assert_eq!(copy.counters().suspensions, 8);
        copy.observe(4, 8, now);
        assert_eq!(copy.backoff_tokens(), 64, "half a block accepted: copying pays again");
    }

    #[test]
    fn the_average_must_fall_below_its_threshold() {
        let suspended_after = |accepted: [usize; 3]| {
            let mut copy = ContextCopy::new(CopySettings::default(), &prompt());
            accepted.into_iter().for_each(|accepted| copy.observe(accepted, 8, 10));
            copy.is_suspended(10)
        };
        assert!(suspended_after([2, 2, 2]), "0.5, 0.425, 0.3725, 0.33575");
        assert!(!suspended_after([2, 3, 2]), "0.5, 0.425, 0.41, 0.362");
    }

    #[test]
    fn a_block_ends_at_the_room_and_at_the_end_of_the_prompt() {
        let prompt = prompt();
        let mut copy = ContextCopy::new(CopySettings::default(), &prompt);
        assert_eq!(copy.propose(&prompt[20..40], 3).unwrap().tokens, [40, 41, 42]);
        assert_eq!(copy.propose(&prompt[20..40], 0).unwrap().tokens, [40]);
        assert_eq!(copy.propose(&prompt[180..198], 100).unwrap().tokens, [198, 199]);
        assert_eq!(copy.propose(&prompt[180..200], 100), None);
    }

    #[test]
    fn switched_off_it_neither_looks_nor_proposes() {
        let prompt = prompt();
        let off = CopySettings { enabled: false, ..CopySettings::default() };
        let mut copy = ContextCopy::new(off, &prompt);
        assert_eq!(copy.propose(&prompt[20..40], 9), None);
        let mut copy = ContextCopy::new(CopySettings::default(), &prompt);
        copy.disable();
        assert_eq!(copy.propose(&prompt[20..40], 9), None);
        assert_eq!(copy.counters(), CopyCounters::default());
    }
}
