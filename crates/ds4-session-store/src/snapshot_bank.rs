//! Session states kept in memory. Generic over the value, which must be cheap to clone (caches that share storage).
//!
//! A snapshot is immutable: it is inserted, cloned out and dropped. The bank decides which ones stay: per session by
//! [`Retention`], over all sessions by a byte budget in which the longest unused session loses first. What a snapshot
//! is made of it learns from a closure.

use std::collections::HashMap;
use std::sync::Arc;

use crate::MissReason;
use crate::budget::{Budget, Refused, Usage};
use crate::gone::Gone;
use crate::prefix_index::PrefixIndex;
use crate::retention::{Retention, SnapshotKind};

/// Names a snapshot. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId(u64);

/// Gives the storages of a value as (key, bytes); a key may come several times.
pub type StoragesOf<V> = Box<dyn Fn(&V) -> Vec<(usize, u64)> + Send>;

/// Limits of a bank.
#[derive(Clone, Copy, Debug)]
pub struct BankOptions {
    /// Bytes that all snapshots may hold together; shared storage counts once.
    pub bytes: u64,
    /// Which snapshots of a session are kept.
    pub retention: Retention,
    /// Snapshots that a session may have.
    pub most_per_session: usize,
}

impl Default for BankOptions {
    fn default() -> Self {
        Self { bytes: 1 << 30, retention: Retention::default(), most_per_session: 256 }
    }
}

/// A snapshot that a prompt begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHit {
    /// To fetch it with.
    pub id: SnapshotId,
    /// Tokens that it stands for, fewer than the prompt has.
    pub tokens: usize,
    /// The session that goes on from it; `None` if it is the beginning of many.
    pub session: Option<String>,
}

/// Answer to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLookup {
    /// All that fit, longest first.
    pub hits: Vec<SnapshotHit>,
    /// Why there are none.
    pub miss: Option<MissReason>,
}

/// A session that has snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSession<'a> {
    /// Its name.
    pub id: &'a str,
    /// How many.
    pub snapshots: usize,
    /// Bytes that would become free without them, as of the last time that one of them came or went.
    pub bytes: u64,
}

/// Figures for status and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BankStats {
    /// Snapshots held.
    pub snapshots: usize,
    /// Sessions that have any.
    pub sessions: usize,
    /// Bytes held; shared storage counts once.
    pub bytes: u64,
    /// Snapshots evicted for the budget since the start.
    pub evicted: u64,
}

struct Snapshot<V> {
    session: Arc<str>,
    kind: SnapshotKind,
    /// On the timeline that the session has now; false after an edit behind it.
    on_timeline: bool,
    /// Order of uses; higher is later.
    used: u64,
    value: V,
}

#[derive(Default)]
struct Session {
    /// Order of uses; higher is later.
    used: u64,
    in_use: bool,
    /// In the order of insertion.
    snapshots: Vec<SnapshotId>,
    /// What they hold together, until one comes or goes: counting takes as long as the list of all storages is.
    bytes: Option<u64>,
}

/// The bank.
pub struct SnapshotBank<V> {
    options: BankOptions,
    storages_of: StoragesOf<V>,
    snapshots: HashMap<SnapshotId, Snapshot<V>>,
    sessions: HashMap<Arc<str>, Session>,
    index: PrefixIndex<SnapshotId>,
    /// Snapshots that the budget took.
    gone: Gone<SnapshotId, ()>,
    budget: Budget<SnapshotId, usize>,
    next: u64,
    evicted: u64,
}

/// Evicted snapshots whose tokens are remembered.
const REMEMBERED: usize = 32;

impl<V> SnapshotBank<V> {
    /// An empty bank.
    pub fn new(options: BankOptions, storages_of: StoragesOf<V>) -> Self {
        Self {
            options,
            storages_of,
            snapshots: HashMap::new(),
            sessions: HashMap::new(),
            index: PrefixIndex::new(),
            gone: Gone::new(REMEMBERED),
            budget: Budget::new(options.bytes),
            next: 0,
            evicted: 0,
        }
    }

    /// Lengths that say where snapshots are worth taking.
    pub fn retention(&self) -> Retention {
        self.options.retention
    }

    /// Keeps a state of `tokens`. A snapshot of the same session and tokens is replaced; its kind does not fall.
    ///
    /// Snapshots of the session that retention does not want any more are let go, and others if the budget asks for it.
    /// A refused snapshot changes nothing.
    pub fn insert(
        &mut self,
        session: &str,
        tokens: Arc<[u32]>,
        kind: SnapshotKind,
        value: V,
    ) -> Result<SnapshotId, Refused> {
        self.next += 1;
        let id = SnapshotId(self.next);
        let storages = (self.storages_of)(&value);
        let twin = self.twin(session, &tokens);
        let kind = twin.and_then(|twin| self.snapshots.get(&twin)).map_or(kind, |old| old.kind.max(kind));
        self.admit(id, &storages, twin)?;
        if let Some(twin) = twin {
            self.drop_snapshot(twin);
        }
        let session: Arc<str> = Arc::from(session);
        self.index.insert(id, Arc::clone(&tokens));
        let used = self.next;
        let snapshot = Snapshot { session: Arc::clone(&session), kind, on_timeline: true, used, value };
        self.snapshots.insert(id, snapshot);
        let entry = self.sessions.entry(Arc::clone(&session)).or_default();
        entry.used = self.next;
        entry.snapshots.push(id);
        entry.bytes = None;
        self.prune(&session, &tokens);
        Ok(id)
    }

    /// What a prompt can start from. The bank does not change; [`SnapshotBank::fetch`] notes the use.
    pub fn lookup(&self, prompt: &[u32]) -> SnapshotLookup {
        let hit = |(id, tokens)| {
            let snapshot = self.snapshots.get(&id)?;
            let is_shared = snapshot.kind == SnapshotKind::SharedPrefix;
            let session = (!is_shared).then(|| snapshot.session.to_string());
            Some(SnapshotHit { id, tokens, session })
        };
        let hits: Vec<_> = self.index.candidates(prompt).filter_map(hit).collect();
        let miss = hits.is_empty().then(|| self.miss_reason(prompt));
        SnapshotLookup { hits, miss }
    }

    /// The value of a snapshot. It stays in the bank and is the longest to stay now.
    pub fn fetch(&mut self, id: SnapshotId) -> Option<&V> {
        let snapshot = self.snapshots.get_mut(&id)?;
        self.next += 1;
        snapshot.used = self.next;
        if let Some(session) = self.sessions.get_mut(&snapshot.session) {
            session.used = self.next;
        }
        self.budget.touch(&id);
        self.index.touch(id);
        Some(&snapshot.value)
    }

    /// Marks a session as in use or not. In use, its newest snapshot is never evicted, and its others go last.
    pub fn set_in_use(&mut self, session: &str, in_use: bool) {
        self.next += 1;
        let used = self.next;
        let key: Arc<str> = Arc::from(session);
        let entry = self.sessions.entry(Arc::clone(&key)).or_default();
        entry.used = used;
        entry.in_use = in_use;
        if !in_use && entry.snapshots.is_empty() {
            self.sessions.remove(&key);
        }
    }

    /// Drops all snapshots of a session; says whether there were any.
    pub fn remove_session(&mut self, session: &str) -> bool {
        let ids = self.sessions.get(session).map(|entry| entry.snapshots.clone()).unwrap_or_default();
        ids.iter().for_each(|id| self.drop_snapshot(*id));
        !ids.is_empty()
    }

    /// The sessions that have snapshots, in no order.
    pub fn sessions(&mut self) -> impl Iterator<Item = HeldSession<'_>> {
        let Self { sessions, budget, .. } = self;
        let held = sessions.iter_mut().filter(|(_, session)| !session.snapshots.is_empty());
        held.map(|(id, session)| HeldSession {
            id,
            snapshots: session.snapshots.len(),
            bytes: *session.bytes.get_or_insert_with(|| budget.bytes_of(&session.snapshots)),
        })
    }

    /// Figures.
    pub fn stats(&self) -> BankStats {
        let sessions = self.sessions.values().filter(|session| !session.snapshots.is_empty()).count();
        BankStats {
            snapshots: self.snapshots.len(),
            sessions,
            bytes: self.budget.used(),
            evicted: self.evicted,
        }
    }

    /// The snapshots of a session: tokens and kind, by length.
    pub fn session(&self, session: &str) -> Vec<(usize, SnapshotKind)> {
        let ids = self.sessions.get(session).map(|entry| entry.snapshots.as_slice()).unwrap_or_default();
        let mut list: Vec<_> = ids
            .iter()
            .filter_map(|id| Some((self.index.tokens(*id)?.len(), self.snapshots.get(id)?.kind)))
            .collect();
        list.sort_unstable();
        list
    }

    fn twin(&self, session: &str, tokens: &[u32]) -> Option<SnapshotId> {
        let ids = &self.sessions.get(session)?.snapshots;
        ids.iter().copied().find(|id| self.index.tokens(*id).is_some_and(|other| **other == *tokens))
    }

    /// Makes room. `twin` is about to be replaced and goes first if room is needed.
    fn admit(
        &mut self,
        id: SnapshotId,
        storages: &[(usize, u64)],
        twin: Option<SnapshotId>,
    ) -> Result<(), Refused> {
        let newest = |session: &Session| session.snapshots.last().copied();
        let pinned: Vec<SnapshotId> =
            self.sessions.values().filter(|session| session.in_use).filter_map(newest).collect();
        let pinned: Vec<_> = pinned.into_iter().filter(|id| Some(*id) != twin).collect();
        pinned.iter().for_each(|id| self.budget.pin(id));
        let (snapshots, sessions) = (&self.snapshots, &self.sessions);
        let rank = |id: &SnapshotId, _: &Usage| rank(snapshots, sessions, *id, twin);
        let admitted = self.budget.admit(id, storages, rank);
        pinned.iter().for_each(|id| self.budget.unpin(id));
        for evicted in admitted?.evicted {
            if Some(evicted.key) != twin {
                self.evicted += 1;
                if let Some(tokens) = self.index.tokens(evicted.key) {
                    self.gone.add(evicted.key, Arc::clone(tokens), ());
                }
            }
            self.drop_snapshot(evicted.key);
        }
        Ok(())
    }

    /// Lets go what retention does not want in a session that has just grown to `tokens`.
    fn prune(&mut self, session: &str, tokens: &[u32]) {
        let Some(entry) = self.sessions.get(session) else { return };
        let mut ids = Vec::new();
        for &id in &entry.snapshots {
            let Some(own) = self.index.tokens(id) else { continue };
            let Some(snapshot) = self.snapshots.get_mut(&id) else { continue };
            // Longer ones stay on the timeline: a prompt that ends inside it has not changed it yet.
            snapshot.on_timeline = tokens.starts_with(own) || own.starts_with(tokens);
            if snapshot.on_timeline {
                ids.push((id, (own.len(), snapshot.kind)));
            }
        }
        let end = ids.iter().map(|(_, (at, _))| *at).max().unwrap_or(0);
        let places: Vec<_> = ids.iter().map(|(_, place)| *place).collect();
        let mut let_go: Vec<SnapshotId> =
            self.options.retention.superfluous(&places, end).into_iter().map(|i| ids[i].0).collect();
        let too_many = (entry.snapshots.len() - let_go.len()).saturating_sub(self.options.most_per_session);
        if too_many > 0 {
            let newest = entry.snapshots.last().copied();
            let left = |id: &&SnapshotId| !let_go.contains(id) && Some(**id) != newest;
            let mut left: Vec<SnapshotId> = entry.snapshots.iter().filter(left).copied().collect();
            left.sort_by_key(|id| self.snapshots.get(id).map(|s| (s.on_timeline, s.kind, *id)));
            let_go.extend(left.into_iter().take(too_many));
        }
        let_go.into_iter().for_each(|id| self.drop_snapshot(id));
    }

    fn drop_snapshot(&mut self, id: SnapshotId) {
        self.budget.remove(&id);
        self.index.remove(id);
        let Some(snapshot) = self.snapshots.remove(&id) else { return };
        let Some(session) = self.sessions.get_mut(&snapshot.session) else { return };
        session.snapshots.retain(|other| *other != id);
        session.bytes = None;
        if session.snapshots.is_empty() && !session.in_use {
            self.sessions.remove(&snapshot.session);
        }
    }

    fn miss_reason(&self, prompt: &[u32]) -> MissReason {
        if self.gone.candidates(prompt).next().is_some() {
            return MissReason::Evicted;
        }
        MissReason::of_closest(self.index.divergence(prompt))
    }
}

/// What goes first: the twin of the new one; then sessions that are not in use before those that are, the longest unused
/// first, and of a session what an edit has left behind, then boundaries before ends. A snapshot that other sessions
/// start from counts as used when they did so.
fn rank<V>(
    snapshots: &HashMap<SnapshotId, Snapshot<V>>,
    sessions: &HashMap<Arc<str>, Session>,
    id: SnapshotId,
    twin: Option<SnapshotId>,
) -> (bool, bool, u64, bool, SnapshotKind) {
    let Some(snapshot) = snapshots.get(&id) else {
        return (true, true, u64::MAX, true, SnapshotKind::SharedPrefix);
    };
    let session = sessions.get(&snapshot.session);
    let (in_use, used) = session.map_or((false, 0), |session| (session.in_use, session.used));
    let used = if snapshot.kind == SnapshotKind::SharedPrefix { used.max(snapshot.used) } else { used };
    (Some(id) != twin, in_use, used, snapshot.on_timeline, snapshot.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value is a list of storages.
    type Value = Vec<(usize, u64)>;

    fn bank(bytes: u64) -> SnapshotBank<Value> {
        SnapshotBank::new(BankOptions { bytes, ..BankOptions::default() }, Box::new(Value::clone))
    }

    fn tokens(count: usize) -> Arc<[u32]> {
        (0..count as u32).collect()
    }

    fn lengths(bank: &SnapshotBank<Value>, prompt: &[u32]) -> Vec<usize> {
        bank.lookup(prompt).hits.iter().map(|hit| hit.tokens).collect()
    }

    #[test]
    fn another_session_starts_from_a_shared_prefix() {
        let mut bank = bank(1000);
        bank.insert("a", tokens(10), SnapshotKind::SharedPrefix, vec![(1, 10)]).unwrap();
        bank.insert("a", tokens(20), SnapshotKind::TurnEnd, vec![(1, 10), (2, 10)]).unwrap();
        let mut prompt = tokens(10).to_vec();
        prompt.extend([900, 901]);
        let lookup = bank.lookup(&prompt);
        assert_eq!((lookup.hits.len(), lookup.hits[0].tokens, lookup.miss), (1, 10, None));
        assert_eq!(bank.stats(), BankStats { snapshots: 2, sessions: 1, bytes: 20, evicted: 0 });
    }

    #[test]
    fn misses_say_why() {
        let mut bank = bank(15);
        assert_eq!(bank.lookup(&[1]).miss, Some(MissReason::NewSession));
        bank.insert("a", tokens(10), SnapshotKind::TurnEnd, vec![(1, 10)]).unwrap();
        assert_eq!(bank.lookup(&tokens(10)).miss, Some(MissReason::NoSnapshotBefore { token: 10 }));
        assert_eq!(bank.lookup(&[0, 1, 9, 9]).miss, Some(MissReason::DivergedAt { token: 2 }));
        bank.insert("b", Arc::from([7, 8]), SnapshotKind::TurnEnd, vec![(2, 10)]).unwrap();
        assert_eq!(bank.lookup(&tokens(11)).miss, Some(MissReason::Evicted));
    }

    #[test]
    fn the_longest_unused_session_goes_first() {
        let mut bank = bank(30);
        for (session, token) in [("a", 1), ("b", 2), ("c", 3)] {
            bank.insert(session, Arc::from([token]), SnapshotKind::TurnEnd, vec![(token as usize, 10)])
                .unwrap();
        }
        let hit = bank.lookup(&[1, 9]).hits[0].id;
        assert!(bank.fetch(hit).is_some());
        bank.insert("d", Arc::from([4]), SnapshotKind::TurnEnd, vec![(4, 10)]).unwrap();
        assert!(bank.lookup(&[2, 9]).hits.is_empty());
        assert_eq!(lengths(&bank, &[1, 9]), [1]);
    }

    #[test]
    fn a_session_is_what_its_snapshots_hold_together() {
        let mut bank = bank(100);
        bank.insert("a", tokens(5), SnapshotKind::TurnEnd, vec![(1, 10), (2, 5)]).unwrap();
        bank.insert("a", tokens(6), SnapshotKind::TurnEnd, vec![(1, 10), (2, 5), (3, 5)]).unwrap();
        bank.insert("b", tokens(7), SnapshotKind::TurnEnd, vec![(2, 5), (4, 1)]).unwrap();
        let mut sessions: Vec<_> = bank.sessions().collect();
        sessions.sort_by_key(|session| session.id);
        let held = |id, snapshots, bytes| HeldSession { id, snapshots, bytes };
        assert_eq!(sessions, [held("a", 2, 15), held("b", 1, 1)]);
        assert!(bank.remove_session("a") && !bank.remove_session("a"));
    }

    #[test]
    fn a_session_in_use_keeps_its_newest() {
        let mut bank = bank(20);
        bank.set_in_use("a", true);
        bank.insert("a", tokens(5), SnapshotKind::PromptEnd, vec![(1, 10)]).unwrap();
        bank.insert("a", tokens(6), SnapshotKind::TurnEnd, vec![(2, 10)]).unwrap();
        bank.insert("b", Arc::from([70]), SnapshotKind::TurnEnd, vec![(3, 10)]).unwrap();
        assert_eq!(bank.session("a"), [(6, SnapshotKind::TurnEnd)]);
        let too_large = bank.insert("b", Arc::from([71]), SnapshotKind::TurnEnd, vec![(4, 15)]);
        assert_eq!(too_large, Err(Refused::InUse { bytes: 15, limit: 20, held: 10 }));
        assert_eq!(bank.stats().snapshots, 2);
        bank.set_in_use("a", false);
        bank.insert("b", Arc::from([71]), SnapshotKind::TurnEnd, vec![(4, 15)]).unwrap();
        assert_eq!(bank.session("a"), []);
    }

    #[test]
    fn the_same_state_again_replaces_the_old_one() {
        let mut bank = bank(10);
        bank.insert("a", tokens(5), SnapshotKind::SharedPrefix, vec![(1, 10)]).unwrap();
        bank.insert("a", tokens(5), SnapshotKind::Boundary, vec![(2, 10)]).unwrap();
        assert_eq!(bank.session("a"), [(5, SnapshotKind::SharedPrefix)]);
        assert_eq!(bank.stats(), BankStats { snapshots: 1, sessions: 1, bytes: 10, evicted: 0 });
    }

    #[test]
    fn an_edit_leaves_the_old_branch_for_later() {
        let mut bank = bank(1000);
        bank.insert("a", Arc::from([1, 2]), SnapshotKind::TurnEnd, vec![(1, 1)]).unwrap();
        bank.insert("a", Arc::from([1, 2, 3]), SnapshotKind::TurnEnd, vec![(2, 1)]).unwrap();
        bank.insert("a", Arc::from([1, 2, 4]), SnapshotKind::TurnEnd, vec![(3, 1)]).unwrap();
        assert_eq!(lengths(&bank, &[1, 2, 3, 5]), [3, 2]);
    }

    #[test]
    fn memory_plateaus_over_500_turns() {
        let mut bank = bank(u64::MAX);
        let mut most = 0;
        for turn in 1..=500usize {
            let end = turn * 100;
            let pages = (0..end / 256).map(|page| (page, 256)).chain([(100_000 + turn, 1000)]);
            bank.insert("a", tokens(end), SnapshotKind::TurnEnd, pages.collect()).unwrap();
            let states = (bank.stats().bytes - (end / 256 * 256) as u64) / 1000;
            most = most.max(states);
        }
        assert!(most <= 60, "{most} states kept beside the shared pages");
    }
}
