//! Loading a state: everything is verified before anything is handed out.

use std::fs;
use std::io;
use std::sync::Arc;

use super::Store;
use crate::checkpoint_file::{PROLOGUE, PartEntry, Place, StateHead, read_head, read_prologue, verify_part};
use crate::error::{Damage, Miss};
use crate::part::{LoadedPart, PartBytes};
use crate::{BlobId, MissReason, SessionRecord, StateId};

/// A state as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedState {
    /// Tokens it stands for.
    pub tokens: Vec<u32>,
    /// The session it belongs to.
    pub session: Option<SessionRecord>,
    /// Its parts, in the order in which they were saved.
    pub parts: Vec<LoadedPart>,
}

/// What kept a state from being loaded, and the blob it was found in.
struct Failure {
    damage: Damage,
    blob: Option<BlobId>,
}

impl Store {
    /// Loads a state. It is not evicted meanwhile, and a load waits for no writer. A damaged one is taken out of use; the
    /// caller goes on with its next candidate.
    pub fn load(&self, id: StateId) -> Result<LoadedState, Miss> {
        let known = {
            let mut inner = self.inner();
            inner.budget.pin(&id);
            inner.states.get(&id).is_some_and(|state| !state.is_record())
        };
        let loaded = if known { self.read_state(id) } else { Err(Failure::gone()) };
        let (now, half_life) = (self.now(), self.half_life());
        let mut inner = self.inner();
        inner.budget.unpin(&id);
        match loaded {
            Ok(loaded) => {
                inner.stats.loads += 1;
                inner.budget.touch(&id);
                if let Some(state) = inner.states.get_mut(&id) {
                    state.usage.hit(now, half_life);
                    let fingerprints = state.fingerprints;
                    if let Some(index) = inner.indexes.get_mut(&fingerprints) {
                        index.touch(id);
                    }
                }
                Ok(loaded)
            }
            Err(failure) => {
                drop(inner);
                Err(self.miss(id, failure))
            }
        }
    }

    /// The caller could not use a state that was loaded: it is taken out of use, so that the same request does not fail
    /// for ever.
    pub fn reject(&self, id: StateId, why: &str) {
        self.condemn(id, None, &Damage::Refused { why: why.to_owned() });
    }

    fn miss(&self, id: StateId, Failure { damage, blob }: Failure) -> Miss {
        let is_gone = damage == Damage::Unreadable { kind: io::ErrorKind::NotFound };
        let may_be_removed = is_gone || matches!(damage, Damage::MissingBlob { .. });
        if self.state(id).is_none() || (self.lock.is_none() && may_be_removed) {
            // Evicted between looking it up and loading it, maybe by the process that writes here.
            return Miss { reason: MissReason::Evicted, damage: None };
        }
        // A lack of memory or of file handles says nothing about the file.
        if is_gone || !matches!(damage, Damage::Unreadable { .. }) {
            self.condemn(id, blob, &damage);
        }
        Miss { reason: MissReason::Corrupt, damage: Some(damage) }
    }

    fn read_state(&self, id: StateId) -> Result<LoadedState, Failure> {
        let file = Arc::new(fs::read(self.folder.state(id)).map_err(Failure::of_file)?);
        let (head, inline_start) = head_of(&file, id).map_err(|damage| Failure { damage, blob: None })?;
        let blobs = head.blobs.iter().map(|blob| {
            let in_blob = |damage| Failure { damage, blob: Some(blob.id) };
            let bytes = fs::read(self.folder.blob(blob.id)).map_err(|error| {
                in_blob(match error.kind() {
                    io::ErrorKind::NotFound => Damage::MissingBlob { blob: blob.id },
                    kind => Damage::Unreadable { kind },
                })
            })?;
            let actual = bytes.len() as u64;
            if actual == blob.bytes {
                Ok(Arc::new(bytes))
            } else {
                Err(in_blob(Damage::Length { expected: blob.bytes, actual }))
            }
        });
        let blobs: Vec<Arc<Vec<u8>>> = blobs.collect::<Result<_, _>>()?;
        let load = |part: &PartEntry| {
            let range = part.range();
            let (bytes, blob) = match part.place {
                Place::Inline => {
                    let range = inline_start + range.start..inline_start + range.end;
                    (PartBytes::new(Arc::clone(&file), range), None)
                }
                Place::Blob(number) => {
                    (PartBytes::new(Arc::clone(&blobs[number]), range), Some(head.blobs[number].id))
                }
            };
            verify_part(part, &bytes).map_err(|damage| Failure { damage, blob })?;
            let PartEntry { name, dtype, shape, .. } = part.clone();
            Ok(LoadedPart { name, dtype, shape, bytes })
        };
        let parts = head.parts.iter().map(load).collect::<Result<_, Failure>>()?;
        Ok(LoadedState { tokens: head.tokens, session: head.session, parts })
    }
}

impl Failure {
    fn gone() -> Self {
        Self { damage: Damage::Unreadable { kind: io::ErrorKind::NotFound }, blob: None }
    }

    fn of_file(error: io::Error) -> Self {
        Self { damage: Damage::Unreadable { kind: error.kind() }, blob: None }
    }
}

/// The head of a file, and where its inline parts begin.
fn head_of(file: &[u8], id: StateId) -> Result<(StateHead, usize), Damage> {
    let head = read_head(file, file.len() as u64)?;
    if head.id() != id {
        return Err(Damage::WrongName);
    }
    Ok((head, PROLOGUE + read_prologue(file)?.head_bytes as usize))
}
