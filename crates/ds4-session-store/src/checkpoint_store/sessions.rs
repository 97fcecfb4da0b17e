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
    /// States that a prompt can start from. None are left if all were evicted; the record stays.
    pub states: usize,
    /// Bytes that would become free without it.
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
        let mut files: HashMap<&str, Vec<(StateId, &State)>> = HashMap::new();
        for (id, state) in newest_first(&inner) {
            if let Some(session) = state.session_id() {
                files.entry(session).or_default().push((id, state));
            }
        }
        let mut list: Vec<_> = files.values().filter_map(|files| info(&inner, files)).collect();
        list.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.id.cmp(&b.id)));
        list
    }

    /// What is known of one session. Reads no file and waits for none.
    pub fn session_info(&self, session: &str) -> Option<SessionInfo> {
        let inner = self.inner();
        info(&inner, &of_session(&inner, session))
    }

    /// The record of a session, read from its newest file. `None` if there is none that can be read.
    pub fn session(&self, session: &str) -> Option<SessionRecord> {
        let ids: Vec<StateId> = {
            let inner = self.inner();
            of_session(&inner, session).into_iter().map(|(id, _)| id).collect()
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
    sorted(inner.states.iter().map(|(id, state)| (*id, state)))
}

/// Those of one session, the last saved first.
fn of_session<'a>(inner: &'a Inner, session: &str) -> Vec<(StateId, &'a State)> {
    let own = inner.states.iter().filter(|(_, state)| state.session_id() == Some(session));
    sorted(own.map(|(id, state)| (*id, state)))
}

fn sorted<'a>(states: impl Iterator<Item = (StateId, &'a State)>) -> Vec<(StateId, &'a State)> {
    let used = |state: &State| state.session.as_ref().map_or(0, |session| session.used);
    let mut states: Vec<_> = states.collect();
    states.sort_by_key(|(id, state)| std::cmp::Reverse((used(state), state.saved, state.tokens, *id)));
    states
}

/// What the files of a session say, the newest first: that one has the record that counts.
fn info(inner: &Inner, files: &[(StateId, &State)]) -> Option<SessionInfo> {
    let summary = files.first()?.1.session.as_deref()?;
    Some(SessionInfo {
        id: summary.id.clone(),
        title: summary.title.clone(),
        created: summary.created,
        used: summary.used,
        tokens: summary.timeline,
        states: files.iter().filter(|(_, state)| !state.is_record()).count(),
        exclusive_bytes: inner.budget.bytes_of(files.iter().map(|(id, _)| id)),
    })
}
