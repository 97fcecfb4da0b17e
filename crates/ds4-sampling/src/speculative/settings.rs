//! What a speculative decoder is told before an answer.

use super::ExpectedValueDepth;
use crate::{CopySettings, SamplerConfig};

/// Parameters of one answer.
#[derive(Debug, Clone)]
pub struct SpeculativeConfig {
    /// The target's sampling parameters; its seed and rule start the one random stream of the answer.
    pub target: SamplerConfig,
    /// Sampling parameters of the draft head. Its seed and penalties are ignored.
    pub draft: SamplerConfig,
    /// How many tokens a cycle drafts.
    pub depth: DepthControl,
    /// Context copy. Switched off if the target has penalties, whatever is set here.
    pub copy: CopySettings,
    /// Most tokens in the answer, a stop token included.
    pub max_tokens: usize,
    /// Tokens that end the answer.
    pub stop_tokens: Vec<u32>,
    /// What happens to a drawn correction.
    pub correction: Correction,
}

/// How many tokens a cycle drafts.
#[derive(Debug, Clone, PartialEq)]
pub enum DepthControl {
    /// Always this many; 0 decodes plainly, one token a cycle.
    Fixed(usize),
    /// As many as pay.
    ExpectedValue(ExpectedValueDepth),
}

impl DepthControl {
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Fixed(depth) => *depth,
            Self::ExpectedValue(policy) => policy.settings().max_depth,
        }
    }
}

/// What happens to the token drawn in place of a rejected draft. Both keep the target's distribution, with other draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// It starts the next cycle's window, so that no pass is spent on it alone. Needs caches that keep any prefix of a
    /// verified window.
    Pending,
    /// It is forwarded at once and the next cycle's first token is drawn from its row, as a model without such caches
    /// must do after it has rolled back.
    Reforwarded,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token.
    Stop,
    /// `max_tokens` reached.
    Length,
}
