//! Telling the cache what will be read soon.

/// Where values stand that are fetched, but not read.
#[derive(Clone, Copy)]
pub(crate) struct Source(pub(crate) *const f32);

// SAFETY: the address is never read through: a prefetch brings memory into the cache, or does nothing if there is none.
unsafe impl Sync for Source {}

impl Source {
    /// Fetches `count` values from the one at `first` on.
    #[inline]
    pub(crate) fn prefetch(self, first: usize, count: usize) {
        #[cfg(target_arch = "x86_64")]
        for at in (first..first + count).step_by(LINE) {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: the instruction is part of every x86-64 machine and takes any address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.0.wrapping_add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (first, count);
    }
}

/// Values of a line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 16;
