//! Random streams, samplers and speculative acceptance: pure functions on host logits.
//!
//! A row of logits (`&[f32]`, one per vocabulary entry) becomes a token under the rules of one of two references:
//! MTPLX for Qwen3.8 Flash Next, ds4 for DeepSeek V4 Flash and GLM 5.3 Flash. [`Sampler`] is the plain decode loop's
//! entry, [`speculative::SpeculativeDecoder`] the speculative one's; the parts of both are public. No arrays, no engine,
//! no files, no environment variables.
//!
//! Values are checked against recordings of MTPLX 2.12.2 in `golden/mtplx_receipts`.

mod config;
mod context_copy;
mod distribution;
mod error;
mod logprobs;
mod penalties;
mod rng;
mod sampler;
mod shaping;
pub mod speculative;

pub use config::{SamplerConfig, SamplerRule};
pub use context_copy::{ContextCopy, CopyBlock, CopyCounters, CopySettings, Match, NgramIndex, block_length};
pub use distribution::SparseDistribution;
pub use error::SamplingError;
pub use logprobs::logprobs;
pub use penalties::TokenCounts;
pub use rng::{Pcg64, Pcg64State, RandomState, RandomStream, SeedSequence, XorShift64Star};
pub use sampler::{Sampler, SamplerState};
pub use shaping::Shaper;
