//! The folder of a store: where things are, and how they get there so that a crash leaves either the old or the new.
//!
//! Everything is written under `tmp/`, synced, renamed to its place, and the folder of the place is synced. What lies in
//! `tmp/` at the next start is the rest of a crash and is removed.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::error::StoreError;
use crate::{BlobId, StateId};

/// A large file goes to the disk in stretches of this size, so that no burst of writing holds up other users of the disk.
const STRETCH: usize = 32 << 20;

pub(super) struct Folder {
    root: PathBuf,
    next_temp: AtomicU64,
}

impl Folder {
    /// Makes the folders that are missing.
    pub(super) fn create(root: &Path) -> Result<Self, StoreError> {
        let folder = Self::existing(root);
        for path in [root, &folder.states(), &folder.blobs(), &folder.temp(), &folder.quarantine()] {
            create_private(path).map_err(|source| StoreError::folder(path, source))?;
        }
        Ok(folder)
    }

    /// Of a store that somebody else writes.
    pub(super) fn existing(root: &Path) -> Self {
        Self { root: root.to_owned(), next_temp: AtomicU64::new(0) }
    }

    /// Takes the lock that one process at a time can have, `None` if another has it. The system gives it back when the
    /// process ends, however it ends.
    pub(super) fn lock(&self) -> Result<Option<File>, StoreError> {
        let path = self.root.join("lock");
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| StoreError::folder(&path, source))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(StoreError::folder(&path, source)),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn states(&self) -> PathBuf {
        self.root.join("states")
    }

    pub(super) fn state(&self, id: StateId) -> PathBuf {
        self.states().join(id.to_string())
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Blobs are spread over 256 folders by the first byte of their name.
    pub(super) fn blob(&self, id: BlobId) -> PathBuf {
        self.blobs().join(format!("{:02x}", id.0[0])).join(id.to_string())
    }

    pub(super) fn temp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(super) fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    pub(super) fn usage(&self) -> PathBuf {
        self.root.join("usage.json")
    }

    /// A name under `tmp/` that nobody uses.
    pub(super) fn temp_path(&self) -> PathBuf {
        self.temp().join(self.next_temp.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Bytes of the disk that a user without privileges can still fill.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.root)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Removes what a crash has left under `tmp/`.
    pub(super) fn clear_temp(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.temp())? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

/// Writes a new file and removes it again if that fails.
pub(super) fn write_new(path: &Path, slices: &[&[u8]]) -> Result<(), StoreError> {
    let written = File::create_new(path).and_then(|mut file| {
        let mut since_sync = 0;
        for stretch in slices.iter().flat_map(|slice| slice.chunks(STRETCH)) {
            file.write_all(stretch)?;
            since_sync += stretch.len();
            if since_sync >= STRETCH {
                file.sync_data()?;
                since_sync = 0;
            }
        }
        Ok(())
    });
    written.map_err(|source| {
        // The reason that counts is the first one.
        let _ = fs::remove_file(path);
        StoreError::write(path, source)
    })
}

/// Waits until a file, or the list of names in a folder, is on the disk.
pub(super) fn sync(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| StoreError::write(path, source))
}

/// Moves a written and synced file to its place.
pub(super) fn publish(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|source| StoreError::write(to, source))
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a folder that others cannot look into: conversations are private.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
