//! Session states on disk: a folder of state files and shared blobs, an index over them in memory, and the rules of who
//! stays.
//!
//! All methods take `&self` and can be called from several threads. Those that write wait for each other; looking up and
//! listing never wait for a disk. There is no database: the index is read from the heads of the files at the start.
//! `docs/checkpoint-format.md` describes the folder.

mod cleanup;
mod folder;
mod load;
mod open;
mod save;
mod sessions;
mod usage;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::budget::Budget;
use crate::error::{Damage, StoreError};
use crate::gone::Gone;
use crate::prefix_index::PrefixIndex;
use crate::{BlobId, Fingerprints, MissReason, StateId};
use cleanup::Cleanup;
use folder::Folder;
use usage::Usage;

pub use load::LoadedState;
pub use save::{SaveReport, StateToSave};
pub use sessions::{Prune, Removed, SessionInfo};

/// Seconds since 1970, as the store sees them. Tests bring their own.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What to do when another process writes to the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLocked {
    /// [`StoreError::InUse`].
    Refuse,
    /// Read what is there, save nothing.
    ReadOnly,
}

/// Limits of a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// Bytes that all files may have together.
    pub bytes: u64,
    /// Bytes of the disk that stay free for others.
    pub free_floor: u64,
    /// Bytes that may be written within an hour, so as not to wear the disk out.
    pub hourly_writes: u64,
    /// Time in which a hit loses half of its weight.
    pub hit_half_life: Duration,
    /// Bytes of damaged files that are kept for a look; the oldest go first.
    pub quarantine_bytes: u64,
    /// What to do when another process writes to the folder.
    pub when_locked: WhenLocked,
    /// Where the time comes from.
    pub clock: Clock,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            free_floor: 10 << 30,
            hourly_writes: 128 << 30,
            hit_half_life: Duration::from_secs(6 * 3600),
            quarantine_bytes: 256 << 20,
            when_locked: WhenLocked::Refuse,
            clock: Arc::new(|| folder::seconds(std::time::SystemTime::now())),
        }
    }
}

/// A state that a prompt begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateHit {
    /// To load it with.
    pub id: StateId,
    /// Tokens that it stands for, fewer than the prompt has.
    pub tokens: usize,
    /// The session it belongs to.
    pub session: Option<String>,
}

/// Answer to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// All that fit, longest first.
    pub hits: Vec<StateHit>,
    /// Why there are none.
    pub miss: Option<MissReason>,
}

/// What is known of a state without reading its file.
#[derive(Clone, Debug, PartialEq)]
pub struct StateInfo {
    /// Its name.
    pub id: StateId,
    /// What it depends on.
    pub fingerprints: Fingerprints,
    /// Tokens it stands for. Without tokens it only keeps the record of its session.
    pub tokens: usize,
    /// Bytes of its file and blobs.
    pub bytes: u64,
    /// Bytes that would become free without it.
    pub exclusive_bytes: u64,
    /// The session it belongs to.
    pub session: Option<String>,
    /// Seconds since 1970.
    pub saved: u64,
    /// Seconds since 1970.
    pub last_used: u64,
    /// How often it was loaded lately.
    pub hits: f64,
}

/// A file that was taken out of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReport {
    /// Name of the file, in the folder `quarantine`.
    pub file: String,
    /// What was wrong with it.
    pub damage: Damage,
    /// Seconds since 1970.
    pub at: u64,
}

/// Figures for status and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// States on disk.
    pub states: usize,
    /// Bytes on disk; shared blobs count once.
    pub bytes: u64,
    /// Budget for them.
    pub limit: u64,
    /// States loaded since the start.
    pub loads: u64,
    /// States saved since the start.
    pub saves: u64,
    /// Bytes written since the start.
    pub bytes_written: u64,
    /// States evicted since the start.
    pub evicted: u64,
    /// Files that a crash had left behind, removed at the start.
    pub orphans_removed: u64,
    /// Files taken out of use since the start, the newest last, at most 64.
    pub quarantined: Vec<QuarantineReport>,
    /// Whether another process writes to the folder.
    pub read_only: bool,
}

/// The store.
pub struct Store {
    folder: Folder,
    options: StoreOptions,
    /// Held as long as the store lives; `None` if it may not write.
    lock: Option<File>,
    inner: Mutex<Inner>,
    /// Held by whoever changes files.
    writer: Mutex<Writer>,
}

/// A file in the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stored {
    State(StateId),
    Blob(BlobId),
}

struct Inner {
    states: HashMap<StateId, State>,
    indexes: HashMap<Fingerprints, PrefixIndex<StateId>>,
    budget: Budget<StateId, Stored>,
    /// States that are gone, and why.
    gone: Gone<StateId, (Fingerprints, MissReason)>,
    cleanup: Vec<Cleanup>,
    /// In the budget and on its way to the disk.
    saving: Option<StateId>,
    stats: StoreStats,
}

/// A state that is on disk.
#[derive(Clone)]
struct State {
    fingerprints: Fingerprints,
    tokens: usize,
    session: Option<Arc<SessionSummary>>,
    /// Checksum in the prologue: says whether the same state is there already.
    checksum: crate::Checksum,
    saved: u64,
    usage: Usage,
}

impl State {
    /// It only keeps the record of a session whose states are gone.
    fn is_record(&self) -> bool {
        self.tokens == 0
    }

    fn session_id(&self) -> Option<&str> {
        self.session.as_ref().map(|session| session.id.as_str())
    }
}

/// What a list of sessions shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SessionSummary {
    id: String,
    title: Option<String>,
    created: u64,
    used: u64,
    timeline: usize,
}

impl From<&crate::SessionRecord> for SessionSummary {
    fn from(record: &crate::SessionRecord) -> Self {
        Self {
            id: record.id.clone(),
            title: record.title.clone(),
            created: record.created,
            used: record.used,
            timeline: record.timeline.len(),
        }
    }
}

/// States that are gone and remembered.
const REMEMBERED: usize = 64;

/// What only writers need.
#[derive(Default)]
struct Writer {
    /// When and how much was written in the last hour.
    recent: VecDeque<(u64, u64)>,
}

impl Store {
    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.root()
    }

    /// Bytes that are free on the folder's disk.
    ///
    /// # Errors
    /// The folder is gone, or its disk cannot be asked.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.folder.free_bytes().map_err(|error| StoreError::folder(self.folder.root(), error))
    }

    /// Where damaged files are kept for a look.
    pub fn quarantine_path(&self) -> PathBuf {
        self.folder.quarantine()
    }

    /// What a prompt can start from. Reads no file and waits for none.
    pub fn lookup(&self, fingerprints: &Fingerprints, prompt: &[u32]) -> Lookup {
        let inner = self.inner();
        let hit = |(id, tokens)| {
            let session = inner.states.get(&id)?.session_id().map(str::to_owned);
            Some(StateHit { id, tokens, session })
        };
        let index = inner.indexes.get(fingerprints);
        let hits: Vec<_> =
            index.into_iter().flat_map(|index| index.candidates(prompt)).filter_map(hit).collect();
        let miss = hits.is_empty().then(|| inner.miss_reason(fingerprints, prompt));
        Lookup { hits, miss }
    }

    /// All states, the last used first.
    pub fn list(&self) -> Vec<StateInfo> {
        let inner = self.inner();
        let mut list: Vec<_> = inner.states.keys().filter_map(|id| self.info(&inner, *id)).collect();
        list.sort_by_key(|info| (std::cmp::Reverse(info.last_used), info.id));
        list
    }

    /// What is known of a state.
    pub fn state(&self, id: StateId) -> Option<StateInfo> {
        self.info(&self.inner(), id)
    }

    /// Figures.
    pub fn stats(&self) -> StoreStats {
        let inner = self.inner();
        StoreStats {
            states: inner.states.len(),
            bytes: inner.budget.used(),
            limit: self.options.bytes,
            read_only: self.lock.is_none(),
            ..inner.stats.clone()
        }
    }

    fn info(&self, inner: &Inner, id: StateId) -> Option<StateInfo> {
        let state = inner.states.get(&id)?;
        let bytes = inner.budget.usage(&id)?;
        Some(StateInfo {
            id,
            fingerprints: state.fingerprints,
            tokens: state.tokens,
            bytes: bytes.bytes,
            exclusive_bytes: bytes.exclusive_bytes,
            session: state.session_id().map(str::to_owned),
            saved: state.saved,
            last_used: state.usage.last_used,
            hits: state.usage.hits(self.now(), self.half_life()),
        })
    }

    /// A panic of another thread while it held the lock leaves the books consistent enough: the worst is a file that is
    /// listed and not there, which is a miss.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> Result<MutexGuard<'_, Writer>, StoreError> {
        if self.lock.is_none() {
            return Err(StoreError::ReadOnly { path: self.folder.root().to_owned() });
        }
        Ok(self.writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> u64 {
        (self.options.clock)()
    }

    fn half_life(&self) -> u64 {
        self.options.hit_half_life.as_secs()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let inner = self.inner();
            usage::write(&self.folder, inner.states.iter().map(|(id, state)| (*id, state.usage)));
        }
    }
}

impl Inner {
    /// Makes a state known that is on disk and in the budget.
    fn publish(&mut self, id: StateId, state: State, tokens: Arc<[u32]>) {
        if !state.is_record() {
            self.indexes.entry(state.fingerprints).or_default().insert(id, tokens);
            self.gone.forget(id);
        }
        self.states.insert(id, state);
    }

    /// Forgets a state; its files are the caller's business. The budget is told separately.
    fn withdraw(&mut self, id: StateId, reason: MissReason) -> Option<State> {
        let state = self.states.remove(&id)?;
        if let Some(index) = self.indexes.get_mut(&state.fingerprints) {
            if let Some(tokens) = index.tokens(id).cloned() {
                self.gone.add(id, tokens, (state.fingerprints, reason));
            }
            index.remove(id);
            if index.is_empty() {
                self.indexes.remove(&state.fingerprints);
            }
        }
        Some(state)
    }

    fn miss_reason(&self, fingerprints: &Fingerprints, prompt: &[u32]) -> MissReason {
        if let Some((_, reason)) = self.gone.candidates(prompt).find(|(of, _)| of == fingerprints) {
            return *reason;
        }
        let found = self.indexes.iter().filter_map(|(of, index)| Some((of, index.divergence(prompt)?)));
        // The one that shares the most tokens; of equals one that fits this model.
        let closest = found.max_by_key(|(of, found)| (found.common, *of == fingerprints));
        let mismatch = closest.and_then(|(of, _)| fingerprints.mismatch(of));
        mismatch.unwrap_or_else(|| MissReason::of_closest(closest.map(|(_, found)| found)))
    }
}

#[cfg(test)]
mod tests;
