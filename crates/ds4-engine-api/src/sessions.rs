//! Conversations that outlive requests, as users see them.

use serde::{Deserialize, Serialize};

/// What is known of a session that is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Its name: the one that a request gave, or one that the engine made up.
    pub id: String,
    /// What it is about, if anybody said so.
    pub title: Option<String>,
    /// Seconds since 1970 at the first turn.
    pub created: u64,
    /// Seconds since 1970 at the last turn.
    pub used: u64,
    /// Tokens of the whole conversation.
    pub tokens: usize,
    /// States that a prompt can start from.
    pub states: usize,
    /// Bytes that become free without it.
    pub bytes: u64,
}
