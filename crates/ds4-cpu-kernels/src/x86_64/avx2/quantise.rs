//! Rounding activations to 8-bit integers.
//!
//! A line is what a block of weights is multiplied with: the partners of its low parts, then those of its high parts.

use std::arch::x86_64::*;

use bytemuck::{must_cast, must_cast_mut};

use super::lanes::load;
use super::packing::{Bits4, Bits8, Packing};
use crate::quantised::{LARGEST, Line, SMALLEST};

/// Elements of a line.
fn elements_per_line(bits: u32) -> usize {
    if bits == 4 { Bits4::BLOCK } else { Bits8::BLOCK }
}

/// Lines of a row of `k` elements in groups of `group`. Groups are multiplied by fours, or, where a line has two, by eights: there are
/// lines of zeros for those that lack.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn lines(k: usize, group: usize, bits: u32) -> usize {
    let per_line = elements_per_line(bits);
    k.div_ceil(per_line).next_multiple_of(4 * (group / per_line).max(1))
}

/// Rounds a row by groups of `group`, for weights of `bits` bits.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(
    x: &[f32],
    group: usize,
    bits: u32,
    lines: &mut [Line],
    scales: &mut [f32],
    sums: &mut [f32],
) {
    let per_group = group / 32;
    // The first of these may be half full.
    lines[x.len() / elements_per_line(bits)..].fill(Line([0; 64]));
    for (g, group) in x.as_chunks::<32>().0.chunks_exact(per_group).enumerate() {
        let (factor, scale) = scale(group);
        let factor = _mm256_set1_ps(factor);
        let mut sum = _mm256_setzero_si256();
        for (i, x) in group.iter().enumerate() {
            let q = round(x, factor);
            sum = _mm256_add_epi32(sum, sum_of_pairs(q));
            let at = g * per_group + i;
            let [even, odd] = split(q);
            if bits == 4 {
                let halves: &mut [[__m128i; 2]; 2] = must_cast_mut(&mut lines[at / 2]);
                (halves[0][at % 2], halves[1][at % 2]) = (even, odd);
            } else {
                lines[at] = must_cast([_mm256_cvtepi8_epi16(even), _mm256_cvtepi8_epi16(odd)]);
            }
        }
        scales[g] = scale;
        sums[g] = sum_of_lanes(sum) as f32;
    }
}

/// What to multiply a group's elements with to round them, and their scale: NaN if an element is NaN or infinite.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scale(group: &[[f32; 32]]) -> (f32, f32) {
    // Without their signs, floats are ordered like their bits, and those that are not numbers come last.
    let mut largest = _mm256_setzero_si256();
    for x in group.as_flattened().as_chunks().0 {
        let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), load(x));
        largest = _mm256_max_epi32(_mm256_castps_si256(magnitude), largest);
    }
    let half = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256::<1>(largest));
    let quarter = _mm_max_epi32(half, _mm_shuffle_epi32::<0b00_00_11_10>(half));
    let largest = _mm_max_epi32(quarter, _mm_shuffle_epi32::<0b00_00_00_01>(quarter));
    let largest = f32::from_bits(_mm_cvtsi128_si32(largest).cast_unsigned());
    if !largest.is_finite() {
        (0.0, f32::NAN)
    } else if largest < SMALLEST {
        (0.0, 0.0)
    } else {
        (LARGEST / largest, largest / LARGEST)
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_of_lanes(x: __m256i) -> i32 {
    let half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
    let quarter = _mm_add_epi32(half, _mm_shuffle_epi32::<0b00_00_11_10>(half));
    _mm_cvtsi128_si32(_mm_add_epi32(quarter, _mm_shuffle_epi32::<0b00_00_00_01>(quarter)))
}

/// 32 elements times `factor`, to the nearest integer.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn round(x: &[f32; 32], factor: __m256) -> __m256i {
    let x = x.as_chunks().0;
    let mut q = [_mm256_setzero_si256(); 4];
    for i in 0..4 {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(load(&x[i]), factor));
    }
    let q = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    // Packing worked in each half by itself.
    _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// Sums of four neighbours.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_of_pairs(q: __m256i) -> __m256i {
    _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1))
}

/// Even and odd elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn split(q: __m256i) -> [__m128i; 2] {
    let order = _mm256_setr_epi8(
        0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11,
        13, 15,
    );
    must_cast(_mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(q, order)))
}
