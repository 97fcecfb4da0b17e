//! Reading rows of small floats with block scales as vectors of float32.
//!
//! Both kinds go by way of binary16, whose conversion takes subnormals at full speed: the bits of a small float are those of
//! a half with a longer exponent and mantissa.

use std::arch::x86_64::*;

use super::lanes::LANES;
use super::storage::Storage;
use crate::prefetch::{self, LINE};

/// What makes up for the exponent bias of E4M3 bits that are read as a half: 2^(15 - 7).
pub(crate) const E4M3_FACTOR: f32 = 256.0;

/// A row of E4M3 floats; the scales have [`E4M3_FACTOR`] in them. Its last vector is padded with zeros.
#[derive(Clone, Copy)]
pub(crate) struct E4m3Row<'a> {
    pub(crate) codes: &'a [u8],
    pub(crate) scales: &'a [f32],
    /// Vectors of a block.
    pub(crate) block: usize,
}

impl Storage for E4m3Row<'_> {
    const SPAN: usize = 1;
    type Span = __m256;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn span(self, i: usize) -> __m256 {
        let rest = &self.codes[i * LANES..];
        let codes = match rest.first_chunk::<LANES>() {
            Some(codes) => i64::from_le_bytes(*codes),
            None => {
                let mut padded = [0; LANES];
                padded[..rest.len()].copy_from_slice(rest);
                i64::from_le_bytes(padded)
            }
        };
        let codes = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(codes));
        let magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
        let sign = _mm_slli_epi16::<8>(_mm_andnot_si128(_mm_set1_epi16(0x7f), codes));
        let nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
        let half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16::<7>(magnitude), sign), nan);
        _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(self.scales[i / self.block]))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prefetch(self, i: usize, rows: usize) {
        // Once a cache line.
        if i.is_multiple_of(LINE / LANES) {
            prefetch::line(self.codes.as_ptr().wrapping_add(i * LANES + rows * self.codes.len()));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vector(span: __m256, _: usize) -> __m256 {
        span
    }
}

/// A row of packed E2M1 floats, a whole number of spans.
#[derive(Clone, Copy)]
pub(crate) struct E2m1Row<'a> {
    /// A span's sixteen values each.
    pub(crate) codes: &'a [[u8; LANES]],
    pub(crate) scales: &'a [f32],
    /// Spans of a block.
    pub(crate) block: usize,
}

impl<'a> Storage for E2m1Row<'a> {
    const SPAN: usize = 2;
    /// Upper bytes of sixteen halves, and their scale.
    type Span = (__m128i, __m256);

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn span(self, i: usize) -> Self::Span {
        let codes = _mm_cvtsi64_si128(i64::from_le_bytes(self.codes[i]));
        let low_bits = _mm_set1_epi8(15);
        let low = _mm_and_si128(codes, low_bits);
        let high = _mm_and_si128(_mm_srli_epi16::<4>(codes), low_bits);
        // The upper bytes of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 as halves, then with the sign; the lower bytes are zero.
        let table = _mm_setr_epi8(
            0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, -0x80, -0x48, -0x44, -0x42, -0x40, -0x3e, -0x3c,
            -0x3a,
        );
        let upper = _mm_shuffle_epi8(table, _mm_unpacklo_epi8(low, high));
        (upper, _mm256_set1_ps(self.scales[i / self.block]))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn prefetch(self, i: usize, rows: usize) {
        // Once a cache line.
        if i.is_multiple_of(LINE / LANES) {
            prefetch::line(self.codes.as_ptr().wrapping_add(i + rows * self.codes.len()));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vector((upper, scale): Self::Span, j: usize) -> __m256 {
        let zero = _mm_setzero_si128();
        let halves = if j == 0 { _mm_unpacklo_epi8(zero, upper) } else { _mm_unpackhi_epi8(zero, upper) };
        _mm256_mul_ps(_mm256_cvtph_ps(halves), scale)
    }
}
