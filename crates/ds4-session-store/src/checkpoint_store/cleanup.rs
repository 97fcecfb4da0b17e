//! Taking files away: evicted states, blobs that nobody uses, and damaged files, which are kept in quarantine for a look.
//!
//! Whoever finds damage may not be able to wait for a writer. So damage is noted under the short lock, where it takes
//! effect at once, and the files are moved by the next one who holds the writer's lock.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::TryLockError;

use super::folder;
use super::open::read_head_of;
use super::usage::worth;
use super::{Inner, QuarantineReport, State, Store, Stored, Writer};
use crate::budget::{self, Evicted};
use crate::checkpoint_file::{StateHead, encode};
use crate::error::Damage;
use crate::{BlobId, MissReason, StateId};

/// Something to be done with files.
pub(super) enum Cleanup {
    /// A state file is of no use.
    QuarantineState { name: String, damage: Damage },
    /// A blob is of no use.
    QuarantineBlob { blob: BlobId, damage: Damage },
    /// Storage may be unused now.
    Remove { files: Vec<Stored> },
}

/// Reports that are kept.
const REPORTS: usize = 64;

impl Store {
    /// Takes a state out of use because its file, or one of its blobs, is damaged. Other states that use the blob go
    /// with it.
    pub(super) fn condemn(&self, id: StateId, blob: Option<BlobId>, damage: &Damage) {
        {
            let mut inner = self.inner();
            let mut condemned = vec![id];
            if let Some(blob) = blob {
                condemned = inner.budget.users(&Stored::Blob(blob));
                inner.cleanup.push(Cleanup::QuarantineBlob { blob, damage: damage.clone() });
            }
            // What is being saved right now gets a new file anyway.
            let saving = inner.saving;
            for id in condemned.into_iter().filter(|id| Some(*id) != saving) {
                if inner.withdraw(id, MissReason::Corrupt).is_none() {
                    continue;
                }
                let files = inner.budget.remove(&id).unwrap_or_default();
                inner.cleanup.push(Cleanup::QuarantineState { name: id.to_string(), damage: damage.clone() });
                inner.cleanup.push(Cleanup::Remove { files });
            }
        }
        let writer = match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut writer) = writer {
            self.run_cleanup(&mut writer);
        }
    }

    /// Does what was noted. In a store that may not write, it is only reported.
    pub(super) fn run_cleanup(&self, _: &mut Writer) {
        let tasks = std::mem::take(&mut self.inner().cleanup);
        for task in tasks {
            match task {
                Cleanup::QuarantineState { name, damage } => {
                    self.quarantine(&self.folder.states().join(&name), &name, damage);
                }
                Cleanup::QuarantineBlob { blob, damage } => {
                    self.quarantine(&self.folder.blob(blob), &blob.to_string(), damage);
                }
                Cleanup::Remove { files } => self.remove_unused(&files),
            }
        }
    }

    /// Deletes those of `files` that nobody uses. Whether somebody does is asked now: since they were noted, another
    /// state may have been saved that uses them.
    pub(super) fn remove_unused(&self, files: &[Stored]) {
        if self.lock.is_none() {
            return;
        }
        for file in files {
            if self.inner().budget.holds(file) {
                continue;
            }
            let path = match file {
                Stored::State(id) => self.folder.state(*id),
                Stored::Blob(id) => self.folder.blob(*id),
            };
            if let Err(error) = folder::remove(&path) {
                // The next start removes blobs that nobody uses and finds states again.
                tracing::warn!(path = %path.display(), %error, "a session checkpoint cannot be removed");
            }
        }
    }

    /// Removes what the budget has evicted. A session that loses its last state keeps its record.
    pub(super) fn evict(&self, _: &mut Writer, evicted: Vec<Evicted<StateId, Stored>>) {
        let mut queue = VecDeque::from(evicted);
        while let Some(Evicted { key, freed }) = queue.pop_front() {
            let Some(state) = self.withdraw_evicted(key) else { continue };
            if self.is_last_of_session(&state) {
                queue.extend(self.keep_record(key, &state));
            }
            // States before blobs: a crash in between leaves blobs without a state and never a state without its blobs.
            let (states, blobs): (Vec<_>, Vec<_>) =
                freed.into_iter().partition(|file| matches!(file, Stored::State(_)));
            self.remove_unused(&states);
            self.remove_unused(&blobs);
        }
    }

    /// Evicts from the books until the budget is kept.
    pub(super) fn shrink(&self, inner: &mut Inner) -> Vec<Evicted<StateId, Stored>> {
        let Inner { budget, states, .. } = inner;
        budget.shrink(|id, usage| self.rank(states.get(id), usage))
    }

    /// Lowest goes first: states by their worth, records of sessions after all of them.
    pub(super) fn rank(&self, state: Option<&State>, usage: &budget::Usage) -> (bool, f64) {
        let Some(state) = state else { return (true, f64::INFINITY) };
        let hits = state.usage.hits(self.now(), self.half_life());
        (state.is_record(), worth(hits, state.tokens, usage))
    }

    fn withdraw_evicted(&self, id: StateId) -> Option<State> {
        let mut inner = self.inner();
        inner.stats.evicted += 1;
        inner.withdraw(id, MissReason::Evicted)
    }

    fn is_last_of_session(&self, state: &State) -> bool {
        let Some(session) = state.session_id() else { return false };
        !state.is_record() && !self.inner().states.values().any(|other| other.session_id() == Some(session))
    }

    /// Saves the record of a session alone. Returns what had to go for it; if it cannot be kept, it is lost and said so.
    fn keep_record(&self, id: StateId, state: &State) -> Vec<Evicted<StateId, Stored>> {
        let kept = read_head_of(&self.folder.state(id)).map_err(|damage| damage.to_string());
        let kept = kept.and_then(|(head, ..)| self.write_record(head).map_err(|error| error.to_string()));
        kept.unwrap_or_else(|error| {
            let session = state.session_id().unwrap_or_default();
            tracing::warn!(session, error, "the record of an evicted session is lost");
            Vec::new()
        })
    }

    fn write_record(&self, head: StateHead) -> Result<Vec<Evicted<StateId, Stored>>, crate::StoreError> {
        let encoded = encode(&head.fingerprints, &[], head.session.as_ref(), &[])?;
        let evicted = self.admit(&encoded, head.session.as_ref())?.evicted;
        self.write_state_file(&encoded).inspect_err(|_| {
            self.inner().budget.remove(&encoded.id);
        })?;
        self.publish(&encoded, &head.fingerprints, &[], head.session.as_ref());
        Ok(evicted)
    }

    fn quarantine(&self, path: &Path, name: &str, damage: Damage) {
        let now = self.now();
        tracing::warn!(file = name, %damage, "a session checkpoint is damaged and is not used any more");
        if self.lock.is_some() {
            let target = self.folder.quarantine().join(name);
            let moved = fs::rename(path, &target).and_then(|()| {
                fs::write(target.with_extension("why"), format!("{damage}\nfound at {now}\n"))
            });
            match moved {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(file = name, %error, "it cannot be moved to the quarantine folder");
                }
                _ => {}
            }
            self.limit_quarantine();
        }
        let mut inner = self.inner();
        inner.stats.quarantined.push(QuarantineReport { file: name.to_owned(), damage, at: now });
        if inner.stats.quarantined.len() > REPORTS {
            inner.stats.quarantined.remove(0);
        }
    }

    /// Deletes the oldest files in quarantine until their bytes are few enough.
    fn limit_quarantine(&self) {
        let Ok(entries) = fs::read_dir(self.folder.quarantine()) else { return };
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let meta = entry.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, length, path) in files {
            if bytes <= self.options.quarantine_bytes {
                break;
            }
            bytes -= length;
            if let Err(error) = folder::remove(&path) {
                tracing::warn!(path = %path.display(), %error, "a damaged session checkpoint cannot be removed");
            }
        }
    }
}
