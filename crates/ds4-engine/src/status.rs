//! Counters that the loop writes and anybody may read without waiting for it.

use std::sync::atomic::{AtomicU64, Ordering};

use ds4_engine_api::EngineStatus;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) running: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) decode_tokens: AtomicU64,
    pub(crate) cache_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: usize) {
        counter.fetch_add(amount as u64, Ordering::Relaxed);
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
            cache_bytes: read(&self.cache_bytes),
        }
    }
}
