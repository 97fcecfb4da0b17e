//! Replays what MTPLX 2.12.2 recorded: `golden/mtplx_receipts`, whose README says how the files were made.

// A helper of a test may panic like the test itself.
#![allow(clippy::unwrap_used)]

mod copy;
mod files;
mod rng;
mod sampler;
mod scripted;
mod speculative;
