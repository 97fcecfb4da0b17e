//! States of sequences that outlive their request: restored when a prompt begins like one, kept in memory, and saved to
//! disk beside the decode path.
//!
//! A state stands for a list of tokens. It may be used for a prompt that begins with exactly these tokens and is longer, so
//! that at least one token is left to run. Recurrent layers cannot go back: states are only ever restored whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ds4_array::Stream;
use ds4_engine_api::SessionUse;
use ds4_session_store::{
    BankOptions, MissReason, PendingState, Removed, SaveOutcome, SnapshotBank, SnapshotKind, Store,
    StoreError, WriterOptions, WriterThread,
};
use tracing::{debug, info, warn};

use crate::disk::{DiskOptions, SavedState, load_state};
use crate::model_runner::ModelRunner;
use crate::roster::{Published, Roster};
use crate::state::SequenceState;

/// How long the end of the program waits for states that are being saved.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(20);

/// What keeps states.
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// Bytes of states in memory; 0 keeps none there.
    pub memory_bytes: u64,
    /// Where states are saved; `None` for nowhere.
    pub disk: Option<DiskOptions>,
}

pub(crate) struct Sessions {
    bank: SnapshotBank<SequenceState>,
    disk: Option<Disk>,
    stream: Stream,
    enabled: bool,
    roster: Roster,
    /// The requests that run.
    live: HashMap<Lease, Tenant>,
    leases: u64,
    begun: u64,
    /// Tells the sessions of this run from those of others.
    run: u64,
}

struct Disk {
    options: DiskOptions,
    /// Taken when the program ends.
    writer: Option<WriterThread>,
}

/// A request that runs, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease(u64);

struct Tenant {
    session: String,
    /// The state at the end of the prompt is saved.
    saves_prompt: bool,
    /// The session was removed meanwhile: nothing more is kept of it.
    is_removed: bool,
}

/// Where a request starts.
pub(crate) struct Start {
    /// The longest usable state, or none.
    pub(crate) state: Option<SequenceState>,
    pub(crate) lease: Lease,
    /// Why there is none.
    pub(crate) miss: Option<MissReason>,
}

/// A place in a prompt at which a state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) at: usize,
    pub(crate) kind: SnapshotKind,
}

impl Sessions {
    /// `run` is a number that no other run has.
    pub(crate) fn new(options: SessionOptions, published: Published, stream: Stream, run: u64) -> Self {
        let bank = BankOptions { bytes: options.memory_bytes, ..BankOptions::default() };
        let enabled = options.memory_bytes > 0 || options.disk.is_some();
        let disk = options.disk.map(|options| {
            let done = |session: Option<&str>, outcome| match outcome {
                SaveOutcome::Failed(error) => warn!(session, %error, "a session is not on disk"),
                outcome => debug!(session, ?outcome, "save of a state ended"),
            };
            let writer = WriterThread::start(Arc::clone(&options.store), WriterOptions::default(), done);
            let writer =
                writer.map_err(|error| warn!(%error, "no thread to save states: they stay in memory only"));
            Disk { options, writer: writer.ok() }
        });
        let bank = SnapshotBank::new(bank, Box::new(SequenceState::storages));
        let roster = Roster::new(published);
        Self { bank, disk, stream, enabled, roster, live: HashMap::new(), leases: 0, begun: 0, run }
    }

    /// The longest state that the prompt can start from, in memory or on disk. One that cannot be used is skipped for the
    /// next: it is never a reason to start from nothing while there are others.
    pub(crate) fn start(&mut self, prompt: &[u32], session: &SessionUse, runner: &ModelRunner) -> Start {
        let found = self.bank.lookup(prompt);
        let in_memory = found.hits.first().map_or(0, |hit| hit.tokens);
        let (mut start, disk_miss) = self.load_longer(prompt, in_memory, runner);
        for hit in &found.hits {
            if start.is_none() {
                start = self.bank.fetch(hit.id).map(|state| (state.clone(), hit.session.clone()));
            }
        }
        let miss = match (&start, found.miss, disk_miss) {
            (Some(_), ..) => None,
            _ if !self.enabled => Some(MissReason::Disabled),
            (None, memory, disk) => {
                let memory = memory.unwrap_or(MissReason::NewSession);
                Some(disk.map_or(memory, |disk| memory.or_more_telling(disk)))
            }
        };
        let (state, owner) = start.map_or((None, None), |(state, owner)| (Some(state), owner));
        let (title, saves_prompt) = (session.title.as_deref(), session.saves_prompt);
        let session = session.id.clone().or(owner).unwrap_or_else(|| self.new_session());
        self.leases += 1;
        let lease = Lease(self.leases);
        self.live.insert(lease, Tenant { session: session.clone(), saves_prompt, is_removed: false });
        self.bank.set_in_use(&session, true);
        self.roster.enter(&session, title, self.store().map(Arc::clone).as_deref());
        let cached = state.as_ref().map_or(0, SequenceState::tokens);
        info!(
            session,
            prompt = prompt.len(),
            cached,
            miss = miss.map(MissReason::name),
            at = miss.and_then(MissReason::token),
            "request starts"
        );
        Start { state, lease, miss }
    }

    /// Whether states of such a request are kept.
    pub(crate) fn keeps(&self, session: &SessionUse) -> bool {
        self.enabled && session.keeps
    }

    /// Whether the session of a request was removed since the request began.
    pub(crate) fn is_removed(&self, lease: Lease) -> bool {
        self.live.get(&lease).is_none_or(|tenant| tenant.is_removed)
    }

    /// Name of the session that a request belongs to.
    pub(crate) fn name(&self, lease: Lease) -> &str {
        self.live.get(&lease).map_or("", |tenant| &tenant.session)
    }

    /// How many tokens of a prompt are known in memory or on disk.
    pub(crate) fn known(&self, prompt: &[u32]) -> usize {
        // Hits come longest first.
        let in_memory = self.bank.lookup(prompt).hits.first().map(|hit| hit.tokens);
        let on_disk =
            self.disk.as_ref().and_then(|Disk { options: DiskOptions { store, fingerprints }, .. }| {
                store.lookup(fingerprints, prompt).hits.first().map(|hit| hit.tokens)
            });
        in_memory.max(on_disk).unwrap_or(0)
    }

    /// A state on disk that is longer than the best one in memory.
    fn load_longer(
        &self,
        prompt: &[u32],
        in_memory: usize,
        runner: &ModelRunner,
    ) -> (Option<(SequenceState, Option<String>)>, Option<MissReason>) {
        let Some(Disk { options: DiskOptions { store, fingerprints }, .. }) = &self.disk else {
            return (None, None);
        };
        let found = store.lookup(fingerprints, prompt);
        let mut miss = found.miss;
        for hit in found.hits.into_iter().filter(|hit| hit.tokens > in_memory) {
            let loaded = match store.load(hit.id) {
                Ok(loaded) => loaded,
                Err(error) => {
                    warn!(%error, "a saved state cannot be loaded");
                    miss = Some(MissReason::Corrupt);
                    continue;
                }
            };
            match load_state(&loaded, runner, &self.stream) {
                Ok(state) => return (Some((state, hit.session)), None),
                Err(why) => {
                    warn!(why, "a saved state does not fit");
                    store.reject(hit.id, &why);
                    miss = Some(MissReason::Corrupt);
                }
            }
        }
        (None, miss)
    }

    fn new_session(&mut self) -> String {
        self.begun += 1;
        format!("s-{:08x}-{}", self.run & 0xffff_ffff, self.begun)
    }

    /// Where states are kept on the way from `start` to the end of a prompt, ascending. The last one is a token before the
    /// end: whoever sends the prompt again has that token left to run.
    pub(crate) fn boundaries(&self, start: usize, prompt: usize, shared_prefix: usize) -> Vec<Boundary> {
        if !self.enabled {
            return Vec::new();
        }
        let end = prompt - 1;
        let inside = |at: usize| at > start && at < end;
        let mut all: Vec<Boundary> = self
            .bank
            .retention()
            .boundaries(start, end)
            .into_iter()
            .map(|at| Boundary { at, kind: SnapshotKind::Boundary })
            .collect();
        if inside(shared_prefix) {
            all.push(Boundary { at: shared_prefix, kind: SnapshotKind::SharedPrefix });
        }
        if end > start {
            all.push(Boundary { at: end, kind: SnapshotKind::PromptEnd });
        }
        all.sort_by_key(|boundary| (boundary.at, std::cmp::Reverse(boundary.kind)));
        all.dedup_by_key(|boundary| boundary.at);
        all
    }

    /// Keeps a state of `tokens` in memory; those that end something are saved as well.
    /// Tells if it is in memory now; one that is not may still be on its way to the disk.
    pub(crate) fn keep(
        &mut self,
        lease: Lease,
        tokens: &[u32],
        kind: SnapshotKind,
        state: &SequenceState,
    ) -> bool {
        let Some(Tenant { session, saves_prompt, is_removed: false }) = self.live.get(&lease) else {
            return false;
        };
        if !self.enabled || tokens.is_empty() {
            return false;
        }
        if let Err(error) = state.evaluate() {
            warn!(%error, "a state could not be computed and is not kept");
            return false;
        }
        self.roster.grow(session, tokens.len());
        let tokens: Arc<[u32]> = Arc::from(tokens);
        let is_saved = match kind {
            SnapshotKind::TurnEnd | SnapshotKind::SharedPrefix => true,
            SnapshotKind::PromptEnd => *saves_prompt,
            SnapshotKind::Boundary => false,
        };
        if is_saved {
            self.save(session, Arc::clone(&tokens), kind, state);
        }
        let kept = self.bank.insert(session, tokens, kind, state.clone());
        kept.inspect_err(|refused| debug!(?refused, "a state is not kept in memory")).is_ok()
    }

    fn save(&self, session: &str, tokens: Arc<[u32]>, kind: SnapshotKind, state: &SequenceState) {
        let Some(Disk { options, writer: Some(writer) }) = &self.disk else { return };
        let record = match kind {
            // It belongs to all sessions.
            SnapshotKind::SharedPrefix => None,
            _ => self.roster.record(session, &tokens),
        };
        let parts = Box::new(SavedState::new(state));
        writer.submit(PendingState {
            session: record,
            kind,
            fingerprints: options.fingerprints,
            tokens,
            parts,
        });
    }

    /// A request has ended.
    pub(crate) fn release(&mut self, lease: Lease) {
        let Some(Tenant { session, .. }) = self.live.remove(&lease) else { return };
        let is_in_use = self.live.values().any(|other| other.session == session);
        self.bank.set_in_use(&session, is_in_use);
    }

    /// Removes a session from memory at once and from the disk as soon as its turn has come there, and then answers
    /// whether anything was kept of it. What is on its way, a save or a running request, does not bring it back.
    pub(crate) fn remove(&mut self, session: &str, answer: Sender<Result<bool, StoreError>>) {
        let was_in_memory = self.bank.remove_session(session);
        for tenant in self.live.values_mut().filter(|tenant| tenant.session == session) {
            tenant.is_removed = true;
        }
        // Whoever asked may have gone.
        let done = move |removed: Result<Removed, StoreError>| {
            let _ = answer.send(removed.map(|removed| was_in_memory || removed.states > 0));
        };
        match &self.disk {
            None => done(Ok(Removed::default())),
            Some(Disk { writer: Some(writer), .. }) => writer.remove_session(session, done),
            Some(Disk { options, writer: None }) => done(options.store.remove_session(session)),
        }
    }

    /// Lets other threads know what is in memory.
    pub(crate) fn publish(&mut self) {
        let Self { bank, roster, live, .. } = self;
        roster.publish(bank.sessions(), |session| live.values().any(|tenant| tenant.session == session));
    }

    fn store(&self) -> Option<&Arc<Store>> {
        self.disk.as_ref().map(|disk| &disk.options.store)
    }

    /// Number of states in memory, and their bytes.
    pub(crate) fn held(&self) -> (usize, u64) {
        let stats = self.bank.stats();
        (stats.snapshots, stats.bytes)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        if let Some(writer) = self.disk.as_mut().and_then(|disk| disk.writer.take())
            && !writer.shutdown(SHUTDOWN_DEADLINE)
        {
            warn!("not all states were saved in time");
        }
    }
}
