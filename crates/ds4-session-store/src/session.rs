//! The record of a session: what a conversation is besides its state. Plain data, stored with each state.
//!
//! The token timeline is the truth about a conversation; text is made from it and never the other way round. What the
//! turns said as text is not kept here.

use serde::{Deserialize, Serialize};

/// Who speaks in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions, with the tools.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// Results of tools.
    Tool,
}

/// A stretch of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Who speaks.
    pub role: Role,
    /// Index of its first token in the timeline.
    pub start: usize,
    /// One past its last token.
    pub end: usize,
    /// False if the turn was stopped before the model ended it.
    pub finished: bool,
}

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
    /// In order, without overlaps.
    pub turns: Vec<Turn>,
}

impl SessionRecord {
    /// Bytes that an id may have.
    pub const LONGEST_ID: usize = 200;

    /// A session without turns.
    pub fn new(id: impl Into<String>, now: u64) -> Self {
        Self { id: id.into(), title: None, created: now, used: now, timeline: Vec::new(), turns: Vec::new() }
    }

    /// Appends a turn.
    pub fn push_turn(&mut self, role: Role, tokens: &[u32], finished: bool) {
        let start = self.timeline.len();
        self.timeline.extend_from_slice(tokens);
        self.turns.push(Turn { role, start, end: self.timeline.len(), finished });
    }

    /// Whether every turn lies in the timeline, in order.
    pub fn is_consistent(&self) -> bool {
        let mut at = 0;
        self.turns.iter().all(|turn| {
            let in_order = at <= turn.start && turn.start <= turn.end && turn.end <= self.timeline.len();
            at = turn.end;
            in_order
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_each_other_on_the_timeline() {
        let mut session = SessionRecord::new("s", 5);
        session.push_turn(Role::User, &[1, 2, 3], true);
        session.push_turn(Role::Assistant, &[4], false);
        assert_eq!(session.timeline, [1, 2, 3, 4]);
        assert_eq!((session.turns[1].start, session.turns[1].end), (3, 4));
        assert!(session.is_consistent());
    }

    #[test]
    fn turns_outside_of_the_timeline_are_noticed() {
        let mut session = SessionRecord::new("s", 5);
        session.push_turn(Role::User, &[1, 2, 3], true);
        session.timeline.pop();
        assert!(!session.is_consistent());
    }
}
