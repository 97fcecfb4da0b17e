//! What a client asks for, after text has become tokens and every default has been resolved.

use serde::{Deserialize, Serialize};

/// One answer to generate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    /// Token ids of the rendered prompt; at least one.
    pub prompt: Vec<u32>,
    /// How the next token is chosen.
    pub sampling: SamplingParams,
    /// Most tokens to generate. The engine lowers it to the room that the context leaves.
    pub max_tokens: usize,
    /// Sampling one of these ends the answer with [`FinishReason::Stop`](crate::FinishReason::Stop). The token is
    /// reported and counted, and is part of the model's state.
    pub stop_tokens: Vec<u32>,
    /// Report the log-probability of each token and of this many alternatives.
    pub logprobs: Option<usize>,
}

/// How the next token is chosen. Values are in range: whoever builds this has checked them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// 0 means the most probable token, the lowest id on ties.
    pub temperature: f64,
    /// Mass of the most probable tokens that stay. Outside of (0, 1) nothing is filtered.
    pub top_p: f64,
    /// How many of the most probable tokens stay; 0 means all.
    pub top_k: usize,
    /// Tokens less probable than this share of the most probable one are dropped; 0 drops none.
    pub min_p: f64,
    /// Subtracted once from the logit of each token that was generated before, -2 to 2.
    pub presence_penalty: f64,
    /// Subtracted from the logit of a token for each time it was generated before, -2 to 2.
    pub frequency_penalty: f64,
    /// Added to the logits of single tokens: (id, bias).
    pub logit_bias: Vec<(u32, f64)>,
    /// Start of the random stream. `None` draws one; 0 is a seed like any other.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    /// Greedy: no randomness, no filters, no penalties.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}
