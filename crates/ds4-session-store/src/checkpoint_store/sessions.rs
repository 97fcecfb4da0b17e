//! Sessions as people see them: list, show, remove, prune. A session is the states that bear its id; its record is that
//! of the one saved last.

use std::collections::HashMap;

use super::open::read_head_of;
use super::{Inner, State, Store, Writer};
use crate::error::StoreError;
use crate::{MissReason, SessionRecord, StateId};

/// A line in a list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Of the session.
    pub id: String,
    /// Of the session.
    pub title: Option<String>,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970.
    pub used: u64,
    /// Tokens of the whole conversation.
    pub tokens: usize,
    /// Turns of the whole conversation.
    pub turns: usize,
    /// States that a prompt can start from. None are left if all were evicted; the record stays.
    pub states: usize,
    /// Bytes that would become free without the states, but for blobs that they share among each other.
    pub exclusive_bytes: u64,
}

/// What to remove. Without limits nothing is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prune {
    /// States, and records of sessions, that were not used since then (seconds since 1970).
    pub unused_since: Option<u64>,
    /// As many states of the lowest worth as it takes to use at most these bytes. A session that loses its last state
    /// keeps its record, which is small.
    pub to_bytes: Option<u64>,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// States, and records of sessions.
    pub states: usize,
    /// Bytes that became free.
    pub bytes: u64,
}

impl Store {
    /// All sessions, the last used first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let inner = self.inner();
        let mut sessions: HashMap<&str, SessionInfo> = HashMap::new();
        for (id, state) in newest_first(&inner) {
            let Some(summary) = state.session.as_deref() else { continue };
            // The first of a session is the newest, which has the record that counts.
            let info = sessions.entry(&summary.id).or_insert_with(|| SessionInfo {
                id: summary.id.clone(),
                title: summary.title.clone(),
                created: summary.created,
                used: summary.used,
                tokens: summary.timeline,
                turns: summary.turns,
                states: 0,
                exclusive_bytes: 0,
            });
            info.states += usize::from(!state.is_record());
            info.exclusive_bytes += inner.budget.usage(&id).map_or(0, |usage| usage.exclusive_bytes);
        }
        let mut list: Vec<_> = sessions.into_values().collect();
        list.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.id.cmp(&b.id)));
        list
    }

    /// The record of a session, read from its newest file. `None` if there is none that can be read.
    pub fn session(&self, session: &str) -> Option<SessionRecord> {
        let ids: Vec<StateId> = {
            let inner = self.inner();
            let own =
                newest_first(&inner).into_iter().filter(|(_, state)| state.session_id() == Some(session));
            own.map(|(id, _)| id).collect()
        };
        ids.into_iter().find_map(|id| match read_head_of(&self.folder.state(id)) {
            Ok((head, ..)) => head.session,
            Err(damage) => {
                self.condemn(id, None, &damage);
                None
            }
        })
    }

    /// Removes a session with all of its states and its record.
    pub fn remove_session(&self, session: &str) -> Result<Removed, StoreError> {
        self.remove_where(|state| state.session_id() == Some(session))
    }

    /// Removes a state.
    pub fn remove(&self, id: StateId) -> Result<Removed, StoreError> {
        let mut writer = self.writer()?;
        Ok(self.remove_states(&mut writer, &[id]))
    }

    /// Removes what is old or too much.
    pub fn prune(&self, prune: Prune) -> Result<Removed, StoreError> {
        let mut removed = match prune.unused_since {
            Some(since) => self.remove_where(|state| state.usage.last_used < since)?,
            None => Removed::default(),
        };
        let Some(to_bytes) = prune.to_bytes else { return Ok(removed) };
        let mut writer = self.writer()?;
        let (before, evicted) = {
            let mut inner = self.inner();
            let before = inner.budget.used();
            inner.budget.set_limit(to_bytes);
            let evicted = self.shrink(&mut inner);
            inner.budget.set_limit(self.options.bytes);
            (before, evicted)
        };
        removed.states += evicted.len();
        self.evict(&mut writer, evicted);
        removed.bytes += before.saturating_sub(self.inner().budget.used());
        Ok(removed)
    }

    fn remove_where(&self, condition: impl Fn(&State) -> bool) -> Result<Removed, StoreError> {
        let mut writer = self.writer()?;
        let ids: Vec<StateId> = {
            let inner = self.inner();
            inner.states.iter().filter(|(_, state)| condition(state)).map(|(id, _)| *id).collect()
        };
        Ok(self.remove_states(&mut writer, &ids))
    }

    fn remove_states(&self, writer: &mut Writer, ids: &[StateId]) -> Removed {
        self.run_cleanup(writer);
        let mut removed = Removed::default();
        for id in ids {
            let files = {
                let mut inner = self.inner();
                if inner.withdraw(*id, MissReason::Evicted).is_none() {
                    continue;
                }
                let before = inner.budget.used();
                let files = inner.budget.remove(id).unwrap_or_default();
                removed.states += 1;
                removed.bytes += before - inner.budget.used();
                files
            };
            // The state's own file is the first in its list.
            self.remove_unused(&files);
        }
        removed
    }
}

/// All states, the last saved first.
fn newest_first(inner: &Inner) -> Vec<(StateId, &State)> {
    let mut states: Vec<_> = inner.states.iter().map(|(id, state)| (*id, state)).collect();
    let used = |state: &State| state.session.as_ref().map_or(0, |session| session.used);
    states.sort_by_key(|(id, state)| std::cmp::Reverse((used(state), state.saved, state.tokens, *id)));
    states
}
