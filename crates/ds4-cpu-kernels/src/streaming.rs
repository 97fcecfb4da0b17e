//! Writing what nobody reads soon, past the cache: a line that is only written need not be fetched first.

/// Values from which on something does not wait in the cache for its next reader: half a mebibyte.
pub(crate) const LARGE: usize = 1 << 17;

/// `to` = `from`, which is as long. Call [`finish`] before another thread reads it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn copy(from: &[f32], to: &mut [f32]) {
    use std::arch::x86_64::{__m128, _mm_stream_ps};
    assert_eq!(from.len(), to.len());
    if !to.as_ptr().cast::<__m128>().is_aligned() {
        return to.copy_from_slice(from);
    }
    let (from_vectors, from_rest) = from.as_chunks::<4>();
    let (to_vectors, to_rest) = to.as_chunks_mut::<4>();
    for (from, to) in from_vectors.iter().zip(to_vectors) {
        // SAFETY: four floats, aligned as the instruction needs them; it is part of every x86-64 machine.
        unsafe { _mm_stream_ps(to.as_mut_ptr(), bytemuck::must_cast(*from)) };
    }
    to_rest.copy_from_slice(from_rest);
}

/// The same through the cache: there is no other way.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn copy(from: &[f32], to: &mut [f32]) {
    to.copy_from_slice(from);
}

/// Makes what this thread has written past the cache visible to others before what it writes next.
#[inline]
pub(crate) fn finish() {
    // SAFETY: the instruction is part of every x86-64 machine.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_length_and_place_are_whole() {
        let from: Vec<f32> = (0..40).map(|i| i as f32).collect();
        for first in 0..5 {
            for length in 0..=from.len() - first {
                let mut to = [-1.0; 50];
                copy(&from[..length], &mut to[first..first + length]);
                finish();
                assert_eq!(to[first..first + length], from[..length]);
                assert!(to[..first].iter().chain(&to[first + length..]).all(|&x| x == -1.0));
            }
        }
    }
}
