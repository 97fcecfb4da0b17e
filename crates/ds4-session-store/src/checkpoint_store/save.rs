//! Saving a state: what is new is written, what is there is shared, and nothing counts before it is on the disk.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::folder;
use super::usage::Usage;
use super::{Inner, State, Store, Stored, Writer};
use crate::budget::{Admitted, Refused};
use crate::checkpoint_file::{BlobRef, EncodedBlob, EncodedState, PROLOGUE, encode};
use crate::error::{InvalidState, StoreError};
use crate::{Checksum, Fingerprints, MissReason, PartRef, SessionRecord, StateId};

const HOUR: u64 = 3600;
/// Files that are waited for at the same time.
const SYNCING: usize = 8;

/// A state as the caller has it.
#[derive(Clone, Copy, Debug)]
pub struct StateToSave<'a> {
    /// The session it belongs to; `None` for one that belongs to all, such as a system prompt.
    pub session: Option<&'a SessionRecord>,
    /// What it depends on.
    pub fingerprints: &'a Fingerprints,
    /// Tokens it stands for, at least one.
    pub tokens: &'a [u32],
    /// Its parts, at least one.
    pub parts: &'a [PartRef<'a>],
}

/// What saving led to. The state is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// The name of the state.
    pub id: StateId,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Bytes of blobs that were there already.
    pub bytes_shared: u64,
    /// Blobs that were written.
    pub blobs_written: usize,
    /// States that had to go.
    pub evicted: usize,
    /// The same state with the same record was there, and nothing was done.
    pub already_stored: bool,
}

impl Store {
    /// Saves a state and returns when it is on the disk. Waits for other writers. After an error the folder holds what
    /// it held before, less what was evicted to make room.
    pub fn save(&self, state: &StateToSave<'_>) -> Result<SaveReport, StoreError> {
        if state.tokens.is_empty() || state.parts.is_empty() {
            return Err(InvalidState::Empty.into());
        }
        let encoded = encode(state.fingerprints, state.tokens, state.session, state.parts)?;
        let mut writer = self.writer()?;
        self.run_cleanup(&mut writer);
        if self.note_if_stored(&encoded) {
            let bytes_shared = self.state(encoded.id).map_or(0, |info| info.bytes);
            let id = encoded.id;
            let report = SaveReport {
                id,
                bytes_written: 0,
                bytes_shared,
                blobs_written: 0,
                evicted: 0,
                already_stored: true,
            };
            return Ok(report);
        }
        let new = self.new_blobs(&encoded);
        let new_bytes = encoded.file_bytes() + new.iter().map(|blob| blob.blob.bytes).sum::<u64>();
        self.check_write_budget(&mut writer, new_bytes)?;
        let old = self.inner().budget.storages(&encoded.id);
        let Admitted { evicted, replaced } = self.admit(&encoded, state.session)?;
        self.inner().saving = Some(encoded.id);
        let evicted_count = evicted.len();
        self.evict(&mut writer, evicted);
        let written = self.write_blobs(&new).and_then(|()| self.write_state_file(&encoded));
        match &written {
            Ok(()) => self.publish(&encoded, state.fingerprints, state.tokens, state.session),
            Err(_) => self.undo(encoded.id, old),
        }
        self.inner().saving = None;
        written?;
        self.remove_unused(&replaced);
        self.remove_record(state);
        writer.recent.push_back((self.now(), new_bytes));
        let mut inner = self.inner();
        inner.stats.saves += 1;
        inner.stats.bytes_written += new_bytes;
        let all: u64 = unique(&encoded.blobs).map(|blob| blob.blob.bytes).sum();
        Ok(SaveReport {
            id: encoded.id,
            bytes_written: new_bytes,
            bytes_shared: encoded.file_bytes() + all - new_bytes,
            blobs_written: new.len(),
            evicted: evicted_count,
            already_stored: false,
        })
    }

    /// Enters a state into the budget, which also minds the free space of the disk.
    pub(super) fn admit(
        &self,
        encoded: &EncodedState<'_>,
        session: Option<&SessionRecord>,
    ) -> Result<Admitted<StateId, Stored>, StoreError> {
        let free = self.free_bytes()?;
        let floor = self.options.free_floor;
        let mut inner = self.inner();
        let used = inner.budget.used();
        // What is stored already plus what may still be filled, at most the budget.
        let allowed = (u128::from(used) + u128::from(free)).saturating_sub(u128::from(floor));
        let limit = u64::try_from(allowed).unwrap_or(u64::MAX).min(self.options.bytes);
        let files = files_of(encoded);
        let session = session.map(|session| session.id.as_str());
        let Inner { budget, states, .. } = &mut *inner;
        budget.set_limit(limit);
        let admitted = budget.admit(encoded.id, &files, |id, usage| {
            let state = states.get(id);
            // The record of the session that is being saved is superseded by this state.
            let superseded = state.is_some_and(|state| state.is_record() && state.session_id() == session);
            if superseded { (false, 0.0) } else { self.rank(state, usage) }
        });
        budget.set_limit(self.options.bytes);
        admitted.map_err(|refused| match refused {
            Refused::LargerThanBudget { bytes, limit: at } if at < self.options.bytes => {
                StoreError::TooLittleSpace { bytes, free, floor }
            }
            refused => refused.into(),
        })
    }

    /// Makes a state known whose file is on the disk.
    pub(super) fn publish(
        &self,
        encoded: &EncodedState<'_>,
        fingerprints: &Fingerprints,
        tokens: &[u32],
        session: Option<&SessionRecord>,
    ) {
        let (now, half_life) = (self.now(), self.half_life());
        let mut inner = self.inner();
        let mut usage = inner.states.get(&encoded.id).map_or_else(|| Usage::new(now), |state| state.usage);
        usage.touch(now, half_life);
        let state = State {
            fingerprints: *fingerprints,
            tokens: tokens.len(),
            session: session.map(|record| Arc::new(record.into())),
            checksum: checksum_of(encoded),
            saved: now,
            usage,
        };
        inner.publish(encoded.id, state, Arc::from(tokens));
    }

    /// Writes the state's own file and waits until it is on the disk.
    pub(super) fn write_state_file(&self, encoded: &EncodedState<'_>) -> Result<(), StoreError> {
        let temp = self.folder.temp_path();
        let slices: Vec<&[u8]> =
            std::iter::once(encoded.head.as_slice()).chain(encoded.inline.iter().copied()).collect();
        folder::write_new(&temp, &slices)?;
        let published =
            folder::sync(&temp).and_then(|()| folder::publish(&temp, &self.folder.state(encoded.id)));
        if published.is_err() {
            // The reason that counts is the first one.
            let _ = folder::remove(&temp);
        }
        published?;
        folder::sync(&self.folder.states())
    }

    /// Whether the very same file is there already; that is a use of it.
    fn note_if_stored(&self, encoded: &EncodedState<'_>) -> bool {
        let (now, half_life) = (self.now(), self.half_life());
        let mut inner = self.inner();
        let Some(state) = inner.states.get_mut(&encoded.id) else { return false };
        let is_same = state.checksum == checksum_of(encoded);
        if is_same {
            state.usage.touch(now, half_life);
            inner.budget.touch(&encoded.id);
        }
        is_same
    }

    fn new_blobs<'e, 'a>(&self, encoded: &'e EncodedState<'a>) -> Vec<&'e EncodedBlob<'a>> {
        let inner = self.inner();
        unique(&encoded.blobs).filter(|blob| !inner.budget.holds(&Stored::Blob(blob.blob.id))).collect()
    }

    fn check_write_budget(&self, writer: &mut Writer, bytes: u64) -> Result<(), StoreError> {
        let (now, limit) = (self.now(), self.options.hourly_writes);
        writer.recent.retain(|(at, _)| at.saturating_add(HOUR) > now);
        let written = writer.recent.iter().map(|(_, bytes)| bytes).sum::<u64>();
        if written.saturating_add(bytes) > limit {
            return Err(StoreError::WriteBudget { bytes, written, limit });
        }
        Ok(())
    }

    /// All files are written before the first is synced: the system then writes them together.
    fn write_blobs(&self, new: &[&EncodedBlob<'_>]) -> Result<(), StoreError> {
        let mut written: Vec<(PathBuf, BlobRef)> = Vec::new();
        let result = self.write_and_publish(new, &mut written);
        if result.is_err() {
            for (temp, blob) in &written {
                // The reason that counts is the first one, and the next start removes what is left.
                let _ = folder::remove(temp);
                let _ = folder::remove(&self.folder.blob(blob.id));
            }
        }
        result
    }

    fn write_and_publish(
        &self,
        new: &[&EncodedBlob<'_>],
        written: &mut Vec<(PathBuf, BlobRef)>,
    ) -> Result<(), StoreError> {
        for EncodedBlob { blob, parts } in new {
            let temp = self.folder.temp_path();
            written.push((temp.clone(), *blob));
            folder::write_new(&temp, parts)?;
        }
        let mut folders = BTreeSet::new();
        sync_all(written)?;
        for (temp, blob) in written.iter() {
            let place = self.folder.blob(blob.id);
            if let Some(parent) = place.parent()
                && folders.insert(parent.to_owned())
            {
                folder::create_private(parent).map_err(|source| StoreError::write(parent, source))?;
            }
            folder::publish(temp, &place)?;
        }
        folders.iter().try_for_each(|folder| folder::sync(folder))?;
        if folders.is_empty() { Ok(()) } else { folder::sync(&self.folder.blobs()) }
    }

    /// Takes a state out of the books that did not reach the disk. The one that it was to replace is there as before.
    fn undo(&self, id: StateId, old: Option<Vec<(Stored, u64)>>) {
        let freed = {
            let mut inner = self.inner();
            let freed = inner.budget.remove(&id).unwrap_or_default();
            if let Some(old) = old {
                inner.budget.restore(id, &old);
            }
            freed
        };
        self.remove_unused(&freed);
    }

    /// Once a session has a state again, its lone record is superfluous.
    fn remove_record(&self, state: &StateToSave<'_>) {
        let Some(session) = state.session else { return };
        let freed = {
            let mut inner = self.inner();
            let is_record = |(_, other): &(&StateId, &State)| {
                other.is_record() && other.session_id() == Some(&session.id)
            };
            let records: Vec<StateId> = inner.states.iter().filter(is_record).map(|(id, _)| *id).collect();
            let freed = records.iter().flat_map(|id| {
                inner.withdraw(*id, MissReason::Evicted);
                inner.budget.remove(id).unwrap_or_default()
            });
            freed.collect::<Vec<_>>()
        };
        self.remove_unused(&freed);
    }
}

/// Waits until all of these files are on the disk. Several threads wait at once, because a file system commits together
/// what is waited for together; they use no processor.
fn sync_all(files: &[(PathBuf, BlobRef)]) -> Result<(), StoreError> {
    let share = files.len().div_ceil(SYNCING).max(1);
    std::thread::scope(|scope| {
        let sync_share =
            |share: &[(PathBuf, BlobRef)]| share.iter().try_for_each(|(path, _)| folder::sync(path));
        let start = |share| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || sync_share(share));
            thread.map_err(|source| StoreError::write(&files[0].0, source))
        };
        let waiting = files.chunks(share).map(start).collect::<Result<Vec<_>, _>>()?;
        waiting
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn files_of(encoded: &EncodedState<'_>) -> Vec<(Stored, u64)> {
    let blobs = encoded.blobs.iter().map(|blob| (Stored::Blob(blob.blob.id), blob.blob.bytes));
    std::iter::once((Stored::State(encoded.id), encoded.file_bytes())).chain(blobs).collect()
}

/// Two groups with the same content are one blob.
fn unique<'e, 'a>(blobs: &'e [EncodedBlob<'a>]) -> impl Iterator<Item = &'e EncodedBlob<'a>> {
    let mut seen = HashSet::new();
    blobs.iter().filter(move |blob| seen.insert(blob.blob.id))
}

fn checksum_of(encoded: &EncodedState<'_>) -> Checksum {
    std::array::from_fn(|i| encoded.head[PROLOGUE - size_of::<Checksum>() + i])
}
