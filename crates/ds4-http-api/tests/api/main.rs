//! The API as a client sees it: a real listener, a scripted engine, the demo model's tokenizer and template.

mod chat;
mod completions;
mod disconnect;
mod errors;
mod parameters;
mod server;
mod streaming;
mod support;
