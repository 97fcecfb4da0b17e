//! The store as its users see it: through its public interface, over several processes, on a real disk.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

#[cfg(unix)]
mod crash;
#[cfg(target_os = "linux")]
mod disk_full;
mod laws;
mod processes;
mod states;
mod writer;
