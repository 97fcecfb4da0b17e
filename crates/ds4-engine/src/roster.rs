//! Names, titles and times of the sessions in memory, and the list of them that anybody may read without waiting for the
//! loop. What is on disk says the same of itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ds4_engine_api::{Held, SessionSummary};
use ds4_session_store::{HeldSession, SessionInfo, SessionRecord, Store};

/// The list, for other threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published(Arc<Mutex<Vec<SessionSummary>>>);

impl Published {
    /// All sessions, in memory and on disk, the last used first.
    pub(crate) fn with_disk(&self, store: Option<&Store>) -> Vec<SessionSummary> {
        let in_memory = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let on_disk = store.map(Store::sessions).unwrap_or_default().into_iter().map(summary);
        let mut all: HashMap<String, SessionSummary> =
            on_disk.map(|session| (session.id.clone(), session)).collect();
        for session in in_memory {
            let disk = all.get(&session.id).and_then(|known| known.disk);
            all.insert(session.id.clone(), SessionSummary { disk, ..session });
        }
        let mut list: Vec<_> = all.into_values().collect();
        list.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.id.cmp(&b.id)));
        list
    }

    fn set(&self, list: Vec<SessionSummary>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = list;
    }
}

fn summary(info: SessionInfo) -> SessionSummary {
    let SessionInfo { id, title, created, used, tokens, states, exclusive_bytes } = info;
    let disk = Some(Held { states, bytes: exclusive_bytes });
    SessionSummary { id, title, created, used, tokens, memory: None, disk }
}

/// Sessions that have states in memory, or a request that runs.
#[derive(Default)]
pub(crate) struct Roster {
    known: HashMap<String, Known>,
    published: Published,
}

#[derive(Clone)]
struct Known {
    title: Option<String>,
    created: u64,
    used: u64,
    tokens: usize,
}

impl Roster {
    pub(crate) fn new(published: Published) -> Self {
        Self { published, ..Self::default() }
    }

    /// A request of the session starts. Who comes back from an earlier run is known to the disk.
    pub(crate) fn enter(&mut self, session: &str, title: Option<&str>, store: Option<&Store>) {
        let known = self.known.entry(session.to_owned()).or_insert_with(|| {
            match store.and_then(|store| store.session_info(session)) {
                Some(SessionInfo { title, created, used, tokens, .. }) => {
                    Known { title, created, used, tokens }
                }
                None => Known { title: None, created: now(), used: now(), tokens: 0 },
            }
        });
        if known.title.is_none() {
            known.title = title.map(str::to_owned);
        }
    }

    /// The conversation has come to `tokens`.
    pub(crate) fn grow(&mut self, session: &str, tokens: usize) {
        if let Some(known) = self.known.get_mut(session) {
            (known.used, known.tokens) = (now(), tokens);
        }
    }

    /// What the disk is to know of a conversation of these tokens.
    pub(crate) fn record(&self, session: &str, timeline: &[u32]) -> Option<SessionRecord> {
        let Known { title, created, used, .. } = self.known.get(session)?.clone();
        Some(SessionRecord { id: session.to_owned(), title, created, used, timeline: timeline.to_vec() })
    }

    /// Tells other threads what is in memory, and forgets the sessions that have nothing there and no request.
    pub(crate) fn publish<'a>(
        &mut self,
        held: impl Iterator<Item = HeldSession<'a>>,
        is_in_use: impl Fn(&str) -> bool,
    ) {
        let list = held.filter_map(|session| {
            let Known { title, created, used, tokens } = self.known.get(session.id)?.clone();
            let memory = Some(Held { states: session.snapshots, bytes: session.bytes });
            let id = session.id.to_owned();
            Some(SessionSummary { id, title, created, used, tokens, memory, disk: None })
        });
        let list: Vec<_> = list.collect();
        let held: HashSet<&str> = list.iter().map(|session| session.id.as_str()).collect();
        self.known.retain(|id, _| is_in_use(id) || held.contains(id.as_str()));
        self.published.set(list);
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
