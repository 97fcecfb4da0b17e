//! The record of a session: what a conversation is besides its state. Plain data, stored with each state.
//!
//! The token timeline is the truth about a conversation; text is made from it and never the other way round. But for
//! the title, no text is kept here.

use serde::{Deserialize, Serialize};

/// A conversation that outlives requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Unique among all sessions; chosen by the caller, at most [`SessionRecord::LONGEST_ID`] bytes.
    pub id: String,
    /// What a list shows.
    pub title: Option<String>,
    /// Seconds since 1970 at the first turn.
    pub created: u64,
    /// Seconds since 1970 at the last use.
    pub used: u64,
    /// Every token of the conversation, as it was rendered or sampled. Checkpoint files keep it as numbers beside the
    /// JSON of the other fields.
    #[serde(skip)]
    pub timeline: Vec<u32>,
}

impl SessionRecord {
    /// Bytes that an id may have.
    pub const LONGEST_ID: usize = 200;

    /// A session in which nothing was said.
    pub fn new(id: impl Into<String>, now: u64) -> Self {
        Self { id: id.into(), title: None, created: now, used: now, timeline: Vec::new() }
    }

    /// Whether the id is not empty and short enough.
    pub(crate) fn has_valid_id(&self) -> bool {
        !self.id.is_empty() && self.id.len() <= Self::LONGEST_ID
    }
}
