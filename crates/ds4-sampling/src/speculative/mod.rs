//! Speculative decoding without a model: acceptance, depth policy, and the decoder that drives a cycle.
//!
//! [`SpeculativeDecoder`] decides and counts; whoever owns the model runs the forward passes it asks for.

mod acceptance;
mod confidence;
mod decoder;
mod depth_policy;
mod settings;
mod stats;

pub use acceptance::{
    Draft, Proposal, TargetRows, WindowVerdict, acceptance_probability, residual, verify_drafts,
};
pub use confidence::Confidence;
pub use decoder::{CycleOutcome, DraftStep, NextRow, Plan, SpeculativeDecoder};
pub use depth_policy::{CycleCosts, DepthDecision, DepthSettings, ExpectedValueDepth};
pub use settings::{Correction, DepthControl, FinishReason, SpeculativeConfig};
pub use stats::SpeculationStats;
