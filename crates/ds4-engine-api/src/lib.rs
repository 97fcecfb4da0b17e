//! Plain data between HTTP (or the command line) and the engine.
//!
//! Above this border there are no arrays, below it there is no text: prompts and answers cross it as token
//! ids. Everything here can be built in a test without a model.

mod engine;
mod error;
mod event;
mod request;
mod sessions;
mod status;

pub use engine::{CancelToken, Engine, EventSink, Flow};
pub use error::EngineError;
pub use event::{Event, FinishReason, SpeculationUsage, Token, TokenLogprob, TokenLogprobs, Usage};
pub use request::{GenerateRequest, SamplingParams, SessionUse, Speculation, SpeculationMode};
pub use sessions::{Held, SessionSummary};
pub use status::{EngineStatus, ModelInfo};
