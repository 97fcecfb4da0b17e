//! Opening a store: the lock, the index from the heads of the files, and clearing up after a crash.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::cleanup::Cleanup;
use super::folder::{self, Folder};
use super::usage::{self, Usage};
use super::{Inner, REMEMBERED, State, Store, StoreOptions, StoreStats, Stored, WhenLocked, Writer};
use crate::budget::Budget;
use crate::checkpoint_file::{PROLOGUE, StateHead, read_head, read_prologue};
use crate::error::{Damage, StoreError};
use crate::gone::Gone;
use crate::{BlobId, Checksum, StateId};

impl Store {
    /// Opens a folder, and makes it if it is not there. Damaged files are put into quarantine, what a crash has left
    /// behind is removed, and if the budget is smaller than before, states are evicted.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let folder = Folder::create(path)?;
        let lock = folder.lock()?;
        if lock.is_none() && options.when_locked == WhenLocked::Refuse {
            return Err(StoreError::InUse { path: path.to_owned() });
        }
        let inner = Inner {
            states: HashMap::new(),
            indexes: HashMap::new(),
            budget: Budget::new(options.bytes),
            gone: Gone::new(REMEMBERED),
            cleanup: Vec::new(),
            saving: None,
            stats: StoreStats::default(),
        };
        let writer = Mutex::new(Writer::default());
        let store = Self { folder, options, lock, inner: Mutex::new(inner), writer };
        store.scan()?;
        if store.lock.is_some() {
            store.clear_up()?;
        } else {
            // What looks damaged may be at work in the other process.
            store.inner().cleanup.clear();
        }
        Ok(store)
    }

    /// Reads the heads of all states. States come first and blobs after them: while another process writes, a blob is
    /// there before its state.
    fn scan(&self) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let usage = usage::read(&self.folder);
        let mut blob_bytes = HashMap::new();
        let mut found = Vec::new();
        for entry in read_dir(&self.folder.states())? {
            let name = entry.file_name().to_string_lossy().into_owned();
            match self.examine(&name, &entry.path(), &mut blob_bytes) {
                Ok((id, head, checksum, file_bytes)) => {
                    let saved = entry.metadata().and_then(|m| m.modified()).map_or(0, folder::seconds);
                    let usage = usage.get(&id).copied().unwrap_or_else(|| Usage::new(saved));
                    found.push((id, head, checksum, file_bytes, saved, usage));
                }
                Err(damage) => inner.cleanup.push(Cleanup::QuarantineState { name, damage }),
            }
        }
        // The budget breaks ties by its own order of uses, so they are entered in theirs.
        found.sort_by_key(|(id, .., usage)| (usage.last_used, *id));
        for (id, head, checksum, file_bytes, saved, usage) in found {
            inner.budget.restore(id, &files_of(id, &head, file_bytes));
            let session = head.session.as_ref().map(|record| Arc::new(record.into()));
            let tokens: Arc<[u32]> = head.tokens.into();
            let fingerprints = head.fingerprints;
            let state = State { fingerprints, tokens: tokens.len(), session, checksum, saved, usage };
            inner.publish(id, state, tokens);
        }
        Ok(())
    }

    /// Reads the head of a file and looks whether everything it needs is there.
    fn examine(
        &self,
        name: &str,
        path: &Path,
        blob_bytes: &mut HashMap<BlobId, Option<u64>>,
    ) -> Result<(StateId, StateHead, Checksum, u64), Damage> {
        let (head, checksum, file_bytes) = read_head_of(path)?;
        let id = head.id();
        if StateId::parse(name) != Some(id) {
            return Err(Damage::WrongName);
        }
        for blob in &head.blobs {
            let actual = *blob_bytes
                .entry(blob.id)
                .or_insert_with(|| fs::metadata(self.folder.blob(blob.id)).ok().map(|m| m.len()));
            let actual = actual.ok_or(Damage::MissingBlob { blob: blob.id })?;
            if actual != blob.bytes {
                return Err(Damage::Length { expected: blob.bytes, actual });
            }
        }
        Ok((id, head, checksum, file_bytes))
    }

    /// Removes what a crash has left and evicts what a smaller budget has no room for.
    fn clear_up(&self) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        let temp = self.folder.temp();
        self.folder.clear_temp().map_err(|source| StoreError::folder(&temp, source))?;
        self.run_cleanup(&mut writer);
        let orphans = self.remove_orphans()?;
        let evicted = {
            let mut inner = self.inner();
            inner.stats.orphans_removed = orphans;
            self.shrink(&mut inner)
        };
        self.evict(&mut writer, evicted);
        Ok(())
    }

    /// Removes blobs that no state uses.
    fn remove_orphans(&self) -> Result<u64, StoreError> {
        let inner = self.inner();
        let mut removed = 0;
        for group in read_dir(&self.folder.blobs())? {
            // What is no folder of blobs was put there by somebody else and is left alone.
            if !group.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            for entry in read_dir(&group.path())? {
                let id = entry.file_name().to_str().and_then(BlobId::parse);
                if id.is_some_and(|id| !inner.budget.holds(&Stored::Blob(id))) {
                    folder::remove(&entry.path())
                        .map_err(|source| StoreError::folder(&entry.path(), source))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }
}

/// The files of a state with their lengths.
fn files_of(id: StateId, head: &StateHead, file_bytes: u64) -> Vec<(Stored, u64)> {
    let blobs = head.blobs.iter().map(|blob| (Stored::Blob(blob.id), blob.bytes));
    std::iter::once((Stored::State(id), file_bytes)).chain(blobs).collect()
}

/// Reads and checks the head of a file, with the checksum in its prologue and the length of the file.
pub(super) fn read_head_of(path: &Path) -> Result<(StateHead, Checksum, u64), Damage> {
    let unreadable = |error: io::Error| Damage::Unreadable { kind: error.kind() };
    let mut file = File::open(path).map_err(unreadable)?;
    let file_bytes = file.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    (&mut file).take(PROLOGUE as u64).read_to_end(&mut bytes).map_err(unreadable)?;
    let prologue = read_prologue(&bytes)?;
    if prologue.file_bytes() != file_bytes {
        return Err(Damage::Length { expected: prologue.file_bytes(), actual: file_bytes });
    }
    file.take(prologue.head_bytes).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok((read_head(&bytes, file_bytes)?, prologue.checksum, file_bytes))
}

fn read_dir(path: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    let entries = fs::read_dir(path).and_then(Iterator::collect);
    entries.map_err(|source| StoreError::folder(path, source))
}
