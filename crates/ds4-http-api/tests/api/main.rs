//! The API as a client sees it: a real listener, a scripted engine, the demo model's tokenizer and template.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the test does")]

mod chat;
mod compaction;
mod completions;
mod disconnect;
mod errors;
mod parameters;
mod server;
mod sessions;
mod streaming;
mod support;
