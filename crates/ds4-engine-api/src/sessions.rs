//! Conversations that outlive requests, as users see them.

use serde::{Deserialize, Serialize};

/// What is known of a session.
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
    /// What is kept in memory; it is gone when the engine ends.
    pub memory: Option<Held>,
    /// What is kept on disk. No states are left there if all were evicted; the session is still known.
    pub disk: Option<Held>,
}

/// What is kept of a session in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// States that a prompt can start from.
    pub states: usize,
    /// Bytes that become free there without the session.
    pub bytes: u64,
}
