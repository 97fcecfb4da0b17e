//! What the engine reports while it works, on standard error.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::exit_code::Usage;
use crate::output::Stream;

/// Everything that `filter` lets through, as lines with times.
pub(crate) fn start(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).map_err(|error| Usage(format!("--log {filter}: {error}")))?;
    let is_coloured = Stream::Err.is_coloured();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(is_coloured).init();
    Ok(())
}

/// Only what a person at a terminal has to know, such as a conversation that could not be saved.
pub(crate) fn start_warnings() {
    let is_coloured = Stream::Err.is_coloured();
    let lines = tracing_subscriber::fmt().without_time().with_target(false).with_max_level(LevelFilter::WARN);
    lines.with_writer(io::stderr).with_ansi(is_coloured).init();
}
