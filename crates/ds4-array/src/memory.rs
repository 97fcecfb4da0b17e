//! Buffers: a pool that gives freed ones out again, with counters and limits.
//!
//! Buffers are aligned to 64 bytes and are not cleared when they are reused: every primitive writes its whole output.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use crate::ArrayError;

/// Unit and alignment of allocation: one cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An owned, aligned run of bytes that returns to its pool when dropped.
pub(crate) struct Buffer {
    lines: Vec<Line>,
    bytes: usize,
    pool: Allocator,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.lines));
    }
}

/// How much memory arrays hold. All figures in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Held by live arrays; mapped weights are not counted.
    pub active: usize,
    /// The most that was ever active.
    pub peak: usize,
    /// Freed buffers kept for reuse.
    pub cached: usize,
    /// Buffers taken from the system so far. Stays the same once a steady state is reached.
    pub system_allocations: u64,
}

/// Freed buffers may take this share of the peak besides, when new ones are needed.
const SPARE_SHARE: usize = 8;

#[derive(Debug)]
struct Pool {
    free: BTreeMap<usize, Vec<Vec<Line>>>,
    stats: MemoryStats,
    limit: usize,
    cache_limit: usize,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

/// A pool of buffers. Clones share it.
#[derive(Clone, Debug)]
pub struct Allocator(Arc<Mutex<Pool>>);

impl Default for Allocator {
    fn default() -> Self {
        Self::new()
    }
}

impl Allocator {
    /// An empty pool without limits.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Pool {
            free: BTreeMap::new(),
            stats: MemoryStats::default(),
            limit: usize::MAX,
            cache_limit: usize::MAX,
        })))
    }

    /// Bytes that arrays may hold at once; more is [`ArrayError::OutOfMemory`].
    pub fn set_limit(&self, bytes: usize) {
        self.pool().limit = bytes;
    }

    /// Bytes of freed buffers that are kept; the largest are released first.
    pub fn set_cache_limit(&self, bytes: usize) {
        let mut pool = self.pool();
        pool.cache_limit = bytes;
        pool.shrink_to(bytes);
    }

    /// Releases all freed buffers to the system.
    pub fn clear_cache(&self) {
        self.pool().shrink_to(0);
    }

    /// Current figures.
    pub fn stats(&self) -> MemoryStats {
        self.pool().stats
    }

    /// Starts a new peak measurement from what is active now.
    pub fn reset_peak(&self) {
        let mut pool = self.pool();
        pool.stats.peak = pool.stats.active;
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Buffer, ArrayError> {
        let lines = size_class(bytes);
        let size = lines * size_of::<Line>();
        let mut pool = self.pool();
        if size > pool.limit.saturating_sub(pool.stats.active) {
            return Err(ArrayError::OutOfMemory {
                requested: size,
                active: pool.stats.active,
                limit: pool.limit,
            });
        }
        let lines = pool.take(lines);
        pool.stats.active += lines.len() * size_of::<Line>();
        pool.stats.peak = pool.stats.peak.max(pool.stats.active);
        Ok(Buffer { lines, bytes, pool: self.clone() })
    }

    fn give_back(&self, lines: Vec<Line>) {
        let size = lines.len() * size_of::<Line>();
        let mut pool = self.pool();
        pool.stats.active -= size;
        if pool.stats.cached + size <= pool.cache_limit {
            pool.stats.cached += size;
            pool.free.entry(lines.len()).or_default().push(lines);
        }
    }

    /// The counters stay consistent even if a holder panicked: every change is complete before it can.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// The smallest free buffer that fits and is at most twice as long, else a new one.
    fn take(&mut self, lines: usize) -> Vec<Line> {
        // Lists that are empty stay: sizes come again, and a list that is made again costs an allocation.
        let fitting = self.free.range_mut(lines..=lines * 2).find_map(|(_, list)| list.pop());
        if let Some(found) = fitting {
            self.stats.cached -= found.len() * size_of::<Line>();
            return found;
        }
        let size = lines * size_of::<Line>();
        // Sizes change from one kind of pass to the next. Buffers that do not fit make room for those that do, so that all
        // together stay close to the most that was ever in use.
        let most = self.stats.peak + self.stats.peak / SPARE_SHARE;
        self.shrink_to(most.saturating_sub(self.stats.active + size));
        self.stats.system_allocations += 1;
        vec![Line([0; 64]); lines]
    }

    fn shrink_to(&mut self, bytes: usize) {
        while self.stats.cached > bytes {
            let Some((&size, _)) = self.free.iter().rev().find(|(_, list)| !list.is_empty()) else { return };
            if let Some(list) = self.free.get_mut(&size) {
                list.pop();
                self.stats.cached -= size * size_of::<Line>();
            }
        }
        self.free.retain(|_, list| !list.is_empty());
    }
}

/// Sizes are rounded so that slightly different requests share buffers: to whole lines while small, to an eighth of
/// their power of two when large (at most 12.5 % is wasted).
fn size_class(bytes: usize) -> usize {
    let lines = bytes.div_ceil(size_of::<Line>()).max(1);
    let step = (lines.next_power_of_two() / 16).max(1);
    lines.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_buffer_is_given_out_again() {
        let pool = Allocator::new();
        let first = pool.allocate(1000).unwrap();
        assert_eq!(first.bytes().len(), 1000);
        drop(first);
        assert_eq!(pool.stats().active, 0);
        assert!(pool.stats().cached >= 1000);
        let _second = pool.allocate(990).unwrap();
        assert_eq!(pool.stats().system_allocations, 1);
        assert_eq!(pool.stats().cached, 0);
    }

    #[test]
    fn a_much_larger_free_buffer_is_not_wasted_on_a_small_request() {
        let pool = Allocator::new();
        drop(pool.allocate(1 << 20).unwrap());
        let _small = pool.allocate(64).unwrap();
        assert_eq!(pool.stats().system_allocations, 2);
    }

    #[test]
    fn buffers_that_do_not_fit_make_room_for_new_ones() {
        let pool = Allocator::new();
        for size in [1 << 20, 3 << 20, 7 << 20, 1 << 16] {
            drop(pool.allocate(size).unwrap());
            let stats = pool.stats();
            assert!(stats.active + stats.cached <= stats.peak + stats.peak / SPARE_SHARE, "{stats:?}");
        }
        // What fits is still there.
        let before = pool.stats().system_allocations;
        drop(pool.allocate(7 << 20).unwrap());
        assert_eq!(pool.stats().system_allocations, before);
    }

    #[test]
    fn the_limit_is_an_error_and_not_an_abort() {
        let pool = Allocator::new();
        pool.set_limit(4096);
        let held = pool.allocate(4096).unwrap();
        let refused = pool.allocate(64).err();
        assert_eq!(refused, Some(ArrayError::OutOfMemory { requested: 64, active: 4096, limit: 4096 }));
        drop(held);
        assert!(pool.allocate(64).is_ok());
    }

    #[test]
    fn the_cache_limit_releases_buffers() {
        let pool = Allocator::new();
        drop((pool.allocate(1 << 16).unwrap(), pool.allocate(1 << 12).unwrap()));
        pool.set_cache_limit(1 << 12);
        assert_eq!(pool.stats().cached, 1 << 12);
        pool.clear_cache();
        assert_eq!(pool.stats().cached, 0);
    }

    #[test]
    fn classes_waste_at_most_an_eighth() {
        for bytes in [1, 64, 65, 1000, 4097, 1_000_000, (1 << 24) + 1] {
            let size = size_class(bytes) * 64;
            assert!(size >= bytes && size <= (bytes + 64) * 9 / 8, "{bytes} became {size}");
        }
    }
}
