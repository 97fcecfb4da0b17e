//! What an engine says of itself.

use serde::{Deserialize, Serialize};

use crate::SpeculationUsage;

/// What is loaded. Fixed for the engine's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name that clients use, for example `demo` or the folder's name.
    pub id: String,
    /// `model_type` of config.json.
    pub model_type: String,
    /// Parameters, the draft head included.
    pub parameters: u64,
    /// Bytes of weights.
    pub weight_bytes: u64,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Most tokens in a sequence, prompt and answer together.
    pub context: usize,
    /// Unix seconds when it was loaded.
    pub loaded_at: u64,
}

/// What runs now and what was done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Requests that run now.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that ended, by any cause.
    pub completed: u64,
    /// Of these, cancelled ones.
    pub cancelled: u64,
    /// Of these, failed ones.
    pub failed: u64,
    /// Prompt tokens prefilled.
    pub prefill_tokens: u64,
    /// Tokens generated.
    pub decode_tokens: u64,
    /// What drafting ahead did, in all answers. A pass of several answers counts in each of them.
    pub speculation: SpeculationUsage,
    /// Prompt tokens that needed no prefill.
    pub cached_tokens: u64,
    /// Bytes that the sequences' caches hold.
    pub cache_bytes: u64,
    /// States kept in memory.
    pub snapshots: usize,
    /// Bytes that they hold; shared storage counts once.
    pub snapshot_bytes: u64,
    /// Why the engine answers no requests any more; `None` while it does.
    pub stopped: Option<String>,
}
