//! Reading memory with wide loads.

use std::arch::x86_64::*;

use bytemuck::must_cast;

/// Loads in flight that do not wait for each other.
const CHAINS: usize = 4;

/// Wrapping sum of the bytes taken as little-endian 64-bit words, the last one padded with zeros.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let (vectors, tail) = bytes.as_chunks::<32>();
    let (rounds, rest) = vectors.as_chunks::<CHAINS>();
    let mut sums = [_mm256_setzero_si256(); CHAINS];
    for round in rounds {
        for (sum, vector) in sums.iter_mut().zip(round) {
            *sum = _mm256_add_epi64(*sum, must_cast(*vector));
        }
    }
    for vector in rest {
        sums[0] = _mm256_add_epi64(sums[0], must_cast(*vector));
    }
    let words: [[u64; 4]; CHAINS] = sums.map(must_cast);
    let tail = crate::scalar::read_bandwidth::checksum(tail);
    words.as_flattened().iter().fold(tail, |sum, word| sum.wrapping_add(*word))
}
