//! Sessions that outlive requests and restarts: finding the longest stored prefix of a prompt, keeping states in memory,
//! and keeping them on disk.
//!
//! Two places keep states: a [`SnapshotBank`] in memory, generic over what a state is, and a [`Store`] on disk, to which a
//! state is a list of named bytes ([`PartRef`]). Both answer a prompt with all that fits, longest first, or with a
//! [`MissReason`]. What is restored how, when snapshots are taken, and what a token means is not decided here, and
//! no array is known.

mod budget;
mod checkpoint_file;
mod checkpoint_store;
mod error;
mod fingerprint;
mod gone;
mod miss_reason;
mod part;
mod prefix_index;
mod retention;
mod session;
mod snapshot_bank;
mod writer_thread;

pub use budget::{Admitted, Budget, Evicted, Refused, Usage};
pub use checkpoint_file::{
    BlobId, BlobRef, Checksum, EncodedBlob, EncodedState, LONGEST_HEAD, MAGIC, PROLOGUE, PartEntry, Place,
    Prologue, StateHead, StateId, VERSION, encode, read_head, read_prologue, verify_part,
};
pub use checkpoint_store::{
    Clock, LoadedState, Lookup, Prune, QuarantineReport, Removed, SaveReport, SessionInfo, StateHit,
    StateInfo, StateToSave, Store, StoreOptions, StoreStats, WhenLocked,
};
pub use error::{Damage, InvalidState, Miss, StoreError};
pub use fingerprint::{Fingerprint, Fingerprints};
pub use miss_reason::MissReason;
pub use part::{LoadedPart, PartBytes, PartRef};
pub use prefix_index::{Divergence, PrefixIndex, common_prefix};
pub use retention::{Retention, SnapshotKind};
pub use session::SessionRecord;
pub use snapshot_bank::{
    BankOptions, BankStats, HeldSession, SnapshotBank, SnapshotHit, SnapshotId, SnapshotLookup, StoragesOf,
};
pub use writer_thread::{PendingState, SaveOutcome, StateParts, Submitted, WriterOptions, WriterThread};
