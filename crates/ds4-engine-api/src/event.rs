//! What the engine reports while a request runs. The order is: `Queued`, `Started`, any number of `Prefill`, then
//! `Tokens`, then exactly one of `Finished` and `Failed`.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::EngineError;

/// One step of a running request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request waits behind this many others.
    Queued {
        /// Requests that run first.
        ahead: usize,
    },
    /// The engine took the request up.
    Started {
        /// Prompt tokens whose state was already there and need no prefill.
        cached_tokens: usize,
        /// Prompt tokens in all.
        prompt_tokens: usize,
        /// The seed of the random stream, drawn or given.
        seed: u64,
        /// Session that the request continues or begins.
        session: String,
        /// Why no stored state was used, if none was: a name from a fixed list, such as `diverged_at`.
        miss: Option<String>,
    },
    /// Prefill went on: `done` of `total` prompt tokens are in the state.
    Prefill {
        /// Prompt tokens processed so far, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// The next tokens of the answer, at least one: what a pass of the model has brought. In one piece, since whoever waits for
    /// them is woken by each event, on a processor that has better things to do.
    Tokens(Vec<Token>),
    /// The answer is complete.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// Counts and times.
        usage: Usage,
    },
    /// The request ended with an error; the engine goes on with the next one.
    Failed(EngineError),
}

impl Event {
    /// Ids of the tokens that it brings: none, unless it is `Tokens`.
    pub fn token_ids(&self) -> impl Iterator<Item = u32> {
        let tokens = if let Self::Tokens(tokens) = self { &tokens[..] } else { &[] };
        tokens.iter().map(|token| token.id)
    }
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Present if the request asked for log-probabilities.
    pub logprobs: Option<TokenLogprobs>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A stop token was sampled.
    Stop,
    /// `max_tokens` or the end of the context was reached.
    Length,
    /// The client cancelled or went away.
    Cancelled,
}

/// Log-probability of one token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Natural logarithm of its probability under the model, before temperature and filters.
    pub logprob: f32,
}

/// Log-probabilities at one position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token that was chosen.
    pub chosen: TokenLogprob,
    /// The most probable tokens, best first, as many as were asked for.
    pub top: Vec<TokenLogprob>,
}

/// Counts and times of one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens in all.
    pub prompt_tokens: usize,
    /// Prompt tokens that needed no prefill.
    pub cached_tokens: usize,
    /// Generated tokens, the stop token included.
    pub completion_tokens: usize,
    /// Seconds from submission to the start of work.
    pub queue_seconds: f64,
    /// Seconds from the start of work to the first token.
    pub prefill_seconds: f64,
    /// Seconds from the first token to the end.
    pub decode_seconds: f64,
    /// What drafting ahead did; all 0 without it.
    pub speculation: SpeculationUsage,
}

/// What drafting ahead did in one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpeculationUsage {
    /// Cycles that checked drafts of the head.
    pub cycles: u64,
    /// Drafted tokens.
    pub drafted: u64,
    /// Accepted drafts.
    pub accepted: u64,
    /// Accepted drafts by their position in the window.
    pub accepted_by_position: Vec<u64>,
    /// Tokens that came free after a fully accepted window.
    pub bonus: u64,
    /// Tokens that took the place of a rejected one.
    pub corrections: u64,
    /// Cycles that checked a block copied from the prompt.
    pub copy_rounds: u64,
    /// Tokens of these blocks.
    pub copy_drafted: u64,
    /// Accepted tokens of these blocks.
    pub copied: u64,
    /// Passes of the model while decoding.
    pub verify_passes: u64,
    /// Seconds spent drafting.
    pub draft_seconds: f64,
    /// Seconds spent in passes of the model while decoding.
    pub verify_seconds: f64,
    /// Seconds spent taking back rejected rows.
    pub repair_seconds: f64,
}

impl SpeculationUsage {
    /// What was done since it was `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut done = self.clone();
        done.combine(earlier, |now, before| *now -= before, |now, before| *now -= before);
        done
    }

    fn combine(&mut self, other: &Self, counts: impl Fn(&mut u64, u64), seconds: impl Fn(&mut f64, f64)) {
        let places = self.accepted_by_position.len().max(other.accepted_by_position.len());
        self.accepted_by_position.resize(places, 0);
        for (own, other) in self.accepted_by_position.iter_mut().zip(&other.accepted_by_position) {
            counts(own, *other);
        }
        counts(&mut self.cycles, other.cycles);
        counts(&mut self.drafted, other.drafted);
        counts(&mut self.accepted, other.accepted);
        counts(&mut self.bonus, other.bonus);
        counts(&mut self.corrections, other.corrections);
        counts(&mut self.copy_rounds, other.copy_rounds);
        counts(&mut self.copy_drafted, other.copy_drafted);
        counts(&mut self.copied, other.copied);
        counts(&mut self.verify_passes, other.verify_passes);
        seconds(&mut self.draft_seconds, other.draft_seconds);
        seconds(&mut self.verify_seconds, other.verify_seconds);
        seconds(&mut self.repair_seconds, other.repair_seconds);
    }
}

impl AddAssign<&Self> for SpeculationUsage {
    fn add_assign(&mut self, other: &Self) {
        self.combine(other, |own, other| *own += other, |own, other| *own += other);
    }
}

impl Usage {
    /// Seconds from submission to the first token.
    pub fn time_to_first_token(&self) -> f64 {
        self.queue_seconds + self.prefill_seconds
    }

    /// Prefilled prompt tokens per second; 0 if nothing was prefilled.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.prefill_seconds)
    }

    /// Generated tokens per second after the first one; 0 with fewer than two tokens.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.completion_tokens.saturating_sub(1), self.decode_seconds)
    }
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_since_is_what_has_to_be_added() {
        let earlier = SpeculationUsage {
            cycles: 2,
            accepted_by_position: vec![2, 1],
            verify_seconds: 0.5,
            ..SpeculationUsage::default()
        };
        let now = SpeculationUsage {
            cycles: 5,
            accepted_by_position: vec![4, 3, 2],
            verify_seconds: 0.75,
            ..SpeculationUsage::default()
        };
        let done = now.since(&earlier);
        assert_eq!(
            (done.cycles, &done.accepted_by_position[..], done.verify_seconds),
            (3, &[2, 2, 2][..], 0.25)
        );
        let mut sum = earlier.clone();
        sum += &done;
        assert_eq!(sum, now);
    }
}
