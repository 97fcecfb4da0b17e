//! How 4- and 8-bit weights are multiplied with rounded activations.
//!
//! A block is 32 bytes of a weight row. Masking gives its low parts and shifting its high ones: even and odd elements, for
//! nibbles within bytes as for bytes within pairs. Activations lie in that order too, so weights are never shuffled.

use std::arch::x86_64::*;

/// Weights of one width.
pub(crate) trait Packing {
    /// Elements of a block, and of a line of activations.
    const BLOCK: usize;
    /// Panel vectors for 32 elements of eight columns: as many products as may be added before they are widened.
    const STEPS: usize;

    /// Even elements of a block.
    ///
    /// # Safety
    /// The machine has AVX2.
    unsafe fn low(block: __m256i) -> __m256i;

    /// Odd elements of a block.
    ///
    /// # Safety
    /// The machine has AVX2.
    unsafe fn high(block: __m256i) -> __m256i;

    /// Sums of neighbouring products.
    ///
    /// # Safety
    /// The machine has AVX2.
    unsafe fn multiply(weights: __m256i, x: __m256i) -> __m256i;

    /// Adds what `multiply` returns.
    ///
    /// # Safety
    /// The machine has AVX2.
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i;

    /// Sums as 32-bit integers.
    ///
    /// # Safety
    /// The machine has AVX2.
    unsafe fn widen(sums: __m256i) -> __m256i;
}

/// Nibbles times bytes in 16-bit sums: a product of a pair is at most 2 * 15 * 127, of which 8 fit.
pub(crate) struct Bits4;

impl Packing for Bits4 {
    const BLOCK: usize = 64;
    const STEPS: usize = 8;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn low(block: __m256i) -> __m256i {
        _mm256_and_si256(block, _mm256_set1_epi8(15))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn high(block: __m256i) -> __m256i {
        _mm256_and_si256(_mm256_srli_epi16::<4>(block), _mm256_set1_epi8(15))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn multiply(weights: __m256i, x: __m256i) -> __m256i {
        _mm256_maddubs_epi16(weights, x)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi16(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn widen(sums: __m256i) -> __m256i {
        _mm256_madd_epi16(sums, _mm256_set1_epi16(1))
    }
}

/// Bytes times bytes, both as 16-bit integers since pairs of products of bytes do not fit into 16 bits.
pub(crate) struct Bits8;

impl Packing for Bits8 {
    const BLOCK: usize = 32;
    const STEPS: usize = 16;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn low(block: __m256i) -> __m256i {
        _mm256_and_si256(block, _mm256_set1_epi16(255))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn high(block: __m256i) -> __m256i {
        _mm256_srli_epi16::<8>(block)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn multiply(weights: __m256i, x: __m256i) -> __m256i {
        _mm256_madd_epi16(weights, x)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn widen(sums: __m256i) -> __m256i {
        sums
    }
}
