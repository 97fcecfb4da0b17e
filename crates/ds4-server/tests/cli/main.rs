//! Black-box tests: the program as its users run it, each time in a fresh folder. They need nothing but the demo model in
//! the program.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the test does")]

mod bad_folders;
mod chat;
mod help;
mod inspect;
mod logits;
mod measure;
mod quantize;
mod run;
mod sandbox;
mod serve;
mod server;
mod sessions;
