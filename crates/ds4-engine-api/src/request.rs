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
    /// How tokens are drafted ahead. Changes the speed, not the answer.
    pub speculation: Speculation,
    /// The conversation that the request belongs to.
    pub session: SessionUse,
    /// Tokens at the start of the prompt that other sessions share, such as a system prompt with tools; 0 if none are
    /// known. Their state is kept for these.
    pub shared_prefix: usize,
}

/// The conversation that a request belongs to, and what the request leaves there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUse {
    /// Its name; `None` lets the engine find the one that the prompt continues, or begin one.
    pub id: Option<String>,
    /// What a list of sessions shows, unless the session has a title already.
    pub title: Option<String>,
    /// Whether states are kept for later requests. One that is no turn of the conversation, such as a request for a
    /// summary of it, starts from what is there and leaves nothing behind.
    pub keeps: bool,
    /// Whether the state at the end of the prompt is saved to disk, besides that at the end of the answer: an answer with
    /// reasoning often comes back without it, and then the conversation goes on from where its prompt ended.
    pub saves_prompt: bool,
}

impl Default for SessionUse {
    /// A turn of whatever conversation the prompt continues.
    fn default() -> Self {
        Self { id: None, title: None, keeps: true, saves_prompt: false }
    }
}

/// How tokens are drafted ahead and checked in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speculation {
    /// What drafts.
    pub mode: SpeculationMode,
    /// Most tokens that the draft head proposes at a time, 1 to 5.
    pub depth: usize,
}

impl Speculation {
    /// Deepest chain of drafts.
    pub const MAX_DEPTH: usize = 5;
}

impl Default for Speculation {
    fn default() -> Self {
        Self { mode: SpeculationMode::Auto, depth: 3 }
    }
}

/// What drafts tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeculationMode {
    /// Draft head and context copy, as far as they pay.
    Auto,
    /// Nothing: one token a pass.
    Off,
    /// The model's draft head, always to full depth.
    Mtp,
    /// Runs of tokens found in the prompt.
    Copy,
    /// Both, always to full depth.
    Both,
}

impl SpeculationMode {
    /// All modes with the names that requests and flags use.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("off", Self::Off),
        ("mtp", Self::Mtp),
        ("copy", Self::Copy),
        ("both", Self::Both),
    ];

    /// Whether the draft head is used.
    pub fn drafts(self) -> bool {
        matches!(self, Self::Auto | Self::Mtp | Self::Both)
    }

    /// Whether runs of the prompt are used.
    pub fn copies(self) -> bool {
        matches!(self, Self::Auto | Self::Copy | Self::Both)
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
    }
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
