//! Counters that the loop writes and anybody may read without waiting for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ds4_engine_api::{EngineStatus, SpeculationUsage};

use crate::sequence::Progress;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) running: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) decode_tokens: AtomicU64,
    speculation: Mutex<SpeculationUsage>,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) cache_bytes: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) snapshot_bytes: AtomicU64,
    stopped: OnceLock<String>,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: usize) {
        counter.fetch_add(amount as u64, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, progress: &Progress) {
        Self::add(&self.cached_tokens, progress.cached);
        Self::add(&self.prefill_tokens, progress.prefilled);
        Self::add(&self.decode_tokens, progress.generated);
        *self.speculation() += &progress.speculation;
    }

    fn speculation(&self) -> MutexGuard<'_, SpeculationUsage> {
        self.speculation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_states(&self, (count, bytes): (usize, u64)) {
        Self::set(&self.snapshots, count);
        self.snapshot_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says why the loop has ended. What ran and waited then is gone with it.
    pub(crate) fn stop(&self, reason: String) {
        Self::set(&self.running, 0);
        Self::set(&self.waiting, 0);
        // It ends once.
        let _ = self.stopped.set(reason);
    }

    pub(crate) fn set(counter: &AtomicU64, value: usize) {
        counter.store(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> EngineStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStatus {
            running: read(&self.running) as usize,
            waiting: read(&self.waiting) as usize,
            completed: read(&self.completed),
            cancelled: read(&self.cancelled),
            failed: read(&self.failed),
            prefill_tokens: read(&self.prefill_tokens),
            decode_tokens: read(&self.decode_tokens),
            speculation: self.speculation().clone(),
            cached_tokens: read(&self.cached_tokens),
            cache_bytes: read(&self.cache_bytes),
            snapshots: read(&self.snapshots) as usize,
            snapshot_bytes: read(&self.snapshot_bytes),
            stopped: self.stopped.get().cloned(),
        }
    }
}
