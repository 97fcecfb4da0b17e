//! Telling the cache what will be read soon.

#[cfg(target_arch = "x86_64")]
use ds4_dtype::Floats;

/// Bytes of a line of the cache.
pub(crate) const LINE: usize = 64;

/// How a thread goes through the rows of a weight matrix: on and on, but from row `end` it goes to row `next`.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) end: usize,
    pub(crate) next: usize,
}

impl Path {
    /// On and on.
    pub(crate) const STRAIGHT: Self = Self { end: usize::MAX, next: usize::MAX };

    /// How far from row `row` that row stands which is read `count` rows later. Wraps around if it stands before it.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "fetching is left to the machine"))]
    #[inline]
    pub(crate) fn ahead(self, row: usize, count: usize) -> usize {
        if row + count < self.end { count } else { count.wrapping_add(self.next).wrapping_sub(self.end) }
    }
}

/// Where values stand that are fetched, but not read.
#[derive(Clone, Copy)]
pub(crate) struct Source(pub(crate) *const f32);

// SAFETY: the address is never read through: a prefetch brings memory into the cache, or does nothing if there is none.
unsafe impl Sync for Source {}

impl Source {
    /// The place `count` values further on.
    #[inline]
    pub(crate) fn after(self, count: usize) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Fetches the line of the value that is `count` further on.
    #[inline]
    pub(crate) fn prefetch(self, count: usize) {
        line(self.after(count).0);
    }
}

/// Fetches some values.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn floats(x: Floats<'_>) {
    let (start, bytes) = place(x);
    lines(start, bytes);
}

/// Fetches the line in which some values begin.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn first(x: Floats<'_>) {
    line(place(x).0);
}

/// Where values stand, and how many bytes they take.
#[cfg(target_arch = "x86_64")]
#[inline]
fn place(x: Floats<'_>) -> (*const u8, usize) {
    match x {
        Floats::F32(x) => (x.as_ptr().cast(), size_of_val(x)),
        Floats::F16(x) => (x.as_ptr().cast(), size_of_val(x)),
        Floats::Bf16(x) => (x.as_ptr().cast(), size_of_val(x)),
    }
}

/// Fetches `bytes` bytes from `first` on. An address past the end is fine: a prefetch reads nothing that the program sees.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn lines(first: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE) {
        line(first.wrapping_add(at));
    }
}

/// Fetches the line that `at` points into.
///
/// Into the second level: more such fetches may be under way than those into the first.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn line<T>(at: *const T) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: the instruction is part of every x86-64 machine and takes any address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

/// Left to the machine.
#[cfg(not(target_arch = "x86_64"))]
fn line<T>(_at: *const T) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_later_stands_further_on_or_where_the_path_goes_next() {
        assert_eq!(Path::STRAIGHT.ahead(100, 16), 16);
        // Rows 0 to 40, then 200 and so on.
        let path = Path { end: 40, next: 200 };
        assert_eq!(24 + path.ahead(24, 15), 39);
        assert_eq!(24 + path.ahead(24, 16), 200);
        assert_eq!(32 + path.ahead(32, 16), 208);
        // The same rows once more.
        let path = Path { end: 40, next: 0 };
        assert_eq!(32usize.wrapping_add(path.ahead(32, 16)), 8);
    }
}
