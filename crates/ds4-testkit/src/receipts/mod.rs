//! Replays what MTPLX 2.12.2 recorded: `golden/mtplx_receipts`, whose README says how the files were made.
//!
//! Each function panics at the first thing that differs and else returns how many cases it replayed, so that the tests of a
//! crate and `cargo xtask prove speculation` run the same code.
#![allow(clippy::unwrap_used, reason = "a recording that cannot be read is a failed test like any other")]

pub mod copy;
mod files;
pub mod generations;
pub mod rng;
pub mod sampler;
pub mod scripted;
pub mod speculative;
