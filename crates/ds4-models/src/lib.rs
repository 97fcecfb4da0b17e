//! The model families, one each, and the registry that finds a checkpoint's family.
//!
//! A family reads its `config.json`, names its tensors, and puts shared layers together. It sees rows of sequences, not
//! requests, and no device.

mod batch;
mod causal_lm;
mod config_checks;
mod decisions;
mod deepseek_v4;
mod description;
mod error;
mod glm5_next;
mod names;
mod needed;
mod qwen4_exp;
mod registry;
mod skipped;
mod trunk;

pub use causal_lm::{
    BatchSegment, CausalLm, DraftHead, Forward, LoadOptions, LoadedModel, LogitRows, SamplerRule,
};
pub use decisions::{BlockSelection, LayerDecisions};
pub use description::{CacheSize, Description, LayerCount};
pub use ds4_layers::{CacheError, SequenceCache};
pub use error::ModelError;
pub use names::is_row_table;
pub use needed::missing_tensors;
pub use registry::{FAMILIES, describe, load};
pub use skipped::SkippedPart;
