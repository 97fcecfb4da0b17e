//! The engine loop: turns token prompts into token answers on one thread of its own.
//!
//! Each turn of the loop schedules (who takes part), runs (one forward pass for all of them), and emits (events to whoever
//! asked).
//! Clients only ever leave requests in a queue; nothing that they do can block the loop. No text and no HTTP here.

mod chunk_size;
mod decoding;
mod disk;
mod draft_history;
mod engine_loop;
mod local_engine;
mod model_runner;
mod pace;
mod panics;
mod roster;
mod round;
mod schedule;
mod sequence;
mod sessions;
mod state;
mod status;
mod stepper;
mod time_share;

pub use disk::DiskOptions;
pub use local_engine::{CacheLimit, EngineOptions, LocalEngine, RequestLimits};
pub use sessions::SessionOptions;
pub use stepper::{SteppedAnswer, Stepper};
