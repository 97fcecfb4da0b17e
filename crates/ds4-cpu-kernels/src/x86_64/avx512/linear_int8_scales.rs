//! Scales and biases of sixteen weight rows, turned so that those of a group lie in one vector.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::{Zeroable, must_cast};
use ds4_dtype::Floats;
use half::{bf16, f16};

use super::linear_int8_panel::COLUMNS;
use crate::AffineMatrix;
use crate::x86_64::avx2::linear_int8_scales::{GROUPS, Part, Quarters, quarter};

/// Of each of some groups, the scales and the biases of sixteen columns.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Turned {
    scales: [[f32; COLUMNS]; GROUPS],
    biases: [[f32; COLUMNS]; GROUPS],
}

impl Turned {
    /// Takes the groups `some`, at most [`GROUPS`], of the first weight rows of `columns`, which have `groups`. Where there
    /// are fewer than sixteen, the last takes the places of those that lack.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
    pub(super) fn fill(
        &mut self,
        w: AffineMatrix<'_>,
        columns: Range<usize>,
        groups: usize,
        some: Range<usize>,
        ahead: usize,
    ) {
        let part = Part::<COLUMNS> { columns, groups, some, ahead };
        turn(w.scales, &part, &mut self.scales);
        turn(w.biases, &part, &mut self.biases);
    }

    /// Scales and biases of the `i`th group that was taken.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn group(&self, i: usize) -> (__m512, __m512) {
        (must_cast(self.scales[i]), must_cast(self.biases[i]))
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn turn(values: Floats<'_>, part: &Part<COLUMNS>, out: &mut [[f32; COLUMNS]; GROUPS]) {
    match values {
        Floats::F32(values) => turn_as(values, part, out),
        Floats::F16(values) => turn_as(values, part, out),
        Floats::Bf16(values) => turn_as(values, part, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn turn_as<T: Sixteenths>(values: &[T], part: &Part<COLUMNS>, out: &mut [[f32; COLUMNS]; GROUPS]) {
    let mut copy = None;
    let (values, stride) = part.of(values, &mut copy);
    for (at, out) in (0..part.len()).step_by(T::COUNT).zip(out.chunks_exact_mut(T::COUNT)) {
        // SAFETY: the part has so many columns, and values in whole quarters.
        let quarter = |c: usize| unsafe { quarter(values, c * stride + at) };
        let mut columns = [_mm512_setzero_si512(); 4];
        for (i, columns) in columns.iter_mut().enumerate() {
            let low = _mm256_set_m128i(quarter(i + 4), quarter(i));
            let high = _mm256_set_m128i(quarter(i + 12), quarter(i + 8));
            *columns = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        }
        for (turned, out) in transpose(columns).into_iter().zip(out.chunks_exact_mut(T::COUNT / 4)) {
            // SAFETY: the features are enabled here.
            unsafe { <T as Sixteenths>::widen(turned, out) };
        }
    }
}

/// Within each quarter, element `t` of all vectors for each `t`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab, cd),
        _mm512_unpackhi_epi64(ab, cd),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// A float format, turned as pairs or as single elements.
trait Sixteenths: Quarters {
    /// The elements of each column as float32, one vector for each that a column has.
    ///
    /// # Safety
    /// The machine has AVX-512 (F) and F16C.
    unsafe fn widen(columns: __m512i, out: &mut [[f32; COLUMNS]]);
}

impl Sixteenths for f32 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widen(columns: __m512i, out: &mut [[f32; COLUMNS]]) {
        out[0] = must_cast(columns);
    }
}

impl Sixteenths for f16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widen(columns: __m512i, out: &mut [[f32; COLUMNS]]) {
        out[0] = must_cast(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(columns)));
        out[1] = must_cast(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(columns))));
    }
}

impl Sixteenths for bf16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widen(columns: __m512i, out: &mut [[f32; COLUMNS]]) {
        out[0] = must_cast(_mm512_slli_epi32::<16>(columns));
        out[1] = must_cast(_mm512_and_si512(columns, _mm512_set1_epi32(0xffff_0000_u32.cast_signed())));
    }
}
