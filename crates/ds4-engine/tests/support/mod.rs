//! What several test files need: engines with demo models, prompts, and requests whose events are read from a channel.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of this, in tests only")]

use std::sync::mpsc::{Receiver, channel};

use ds4_array::{Device, Stream};
use ds4_engine::{EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{CancelToken, Engine, Event, GenerateRequest};
use ds4_models::LoadOptions;
use ds4_testkit::golden;
use ds4_weights::ModelFiles;

/// An engine with a bundled model, on two threads.
pub(crate) fn demo_engine(demo: &str, requests: RequestLimits, sessions: SessionOptions) -> LocalEngine {
    let files = ModelFiles::open(&golden::demo(demo)).unwrap();
    let loaded = ds4_models::load(&files, &LoadOptions::new(&Stream::new(&Device::cpu(2)))).unwrap();
    let options = EngineOptions { model_id: demo.to_owned(), context: None, requests, sessions };
    LocalEngine::start(loaded, options)
}

/// Some prompt of the demos' vocabulary.
pub(crate) fn tokens(seed: u32, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        10 + state % 4000
    };
    (0..count).map(|_| next()).collect()
}

pub(crate) fn submit(engine: &LocalEngine, request: GenerateRequest) -> (CancelToken, Receiver<Event>) {
    let (sender, events) = channel();
    (engine.submit(request, Box::new(sender)).unwrap(), events)
}
