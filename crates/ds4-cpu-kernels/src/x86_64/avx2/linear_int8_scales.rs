//! Scales and biases of eight weight rows, turned so that those of a group lie in one vector.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::{Pod, must_cast};
use ds4_dtype::Floats;
use half::{bf16, f16};

use super::lanes::{LANES, transpose};
use crate::{AffineMatrix, prefetch};

/// Groups of a panel at most: 1024 elements in groups of 32.
pub(crate) const GROUPS: usize = 32;

/// Of each group, the scales and the biases of eight columns.
#[derive(Clone, Copy)]
pub(crate) struct ScalePanel {
    pub(crate) scales: [[f32; LANES]; GROUPS],
    pub(crate) biases: [[f32; LANES]; GROUPS],
}

impl ScalePanel {
    pub(crate) fn new() -> Self {
        Self { scales: [[0.0; LANES]; GROUPS], biases: [[0.0; LANES]; GROUPS] }
    }

    /// Takes the groups `some`, at most [`GROUPS`], of the first weight rows of `columns`, which have `groups`. Where there
    /// are fewer than eight, the last takes the places of those that lack.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill(
        &mut self,
        w: AffineMatrix<'_>,
        columns: Range<usize>,
        groups: usize,
        some: Range<usize>,
        ahead: usize,
    ) {
        let part = Part::<LANES> { columns, groups, some, ahead };
        turn(w.scales, &part, &mut self.scales);
        turn(w.biases, &part, &mut self.biases);
    }
}

/// Some groups of the first `N` of some columns.
pub(crate) struct Part<const N: usize> {
    pub(crate) columns: Range<usize>,
    /// Groups of a column.
    pub(crate) groups: usize,
    pub(crate) some: Range<usize>,
    /// How far away the columns are that are fetched.
    pub(crate) ahead: usize,
}

impl<const N: usize> Part<N> {
    /// Groups of the part.
    pub(crate) fn len(&self) -> usize {
        self.some.len()
    }

    /// The values of the columns among a matrix's `values`: from the first of them on, those of a column as many values after
    /// those of the one before as the number says. `copy` is where they are brought together at the matrix's end.
    #[inline]
    pub(crate) fn of<'a, T: Quarters>(
        &self,
        values: &'a [T],
        copy: &'a mut Option<[[T; GROUPS]; N]>,
    ) -> (&'a [T], usize) {
        let Self { columns, groups, some, ahead } = self;
        let start = columns.start * groups + some.start;
        // Those further down will be read soon: this part of them.
        let next = values
            .as_ptr()
            .wrapping_add(columns.start.wrapping_add(*ahead).wrapping_mul(*groups))
            .wrapping_add(N * some.start);
        prefetch::lines(next.cast(), N * some.len() * size_of::<T>());
        // A column's last values may be followed by those of the next, which nobody uses.
        let reach = (N - 1) * groups + some.len().next_multiple_of(T::COUNT);
        if columns.len() >= N && start + reach <= values.len() {
            return (&values[start..start + reach], *groups);
        }
        let copy = copy.insert([[T::zeroed(); GROUPS]; N]);
        for (c, to) in copy.iter_mut().enumerate() {
            let column = (columns.start + c).min(columns.end - 1);
            to[..some.len()].copy_from_slice(&values[column * groups + some.start..][..some.len()]);
        }
        (copy.as_flattened(), GROUPS)
    }
}

/// `out[i][c]` = value `i` of column `c` of the part.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn turn(values: Floats<'_>, part: &Part<LANES>, out: &mut [[f32; LANES]; GROUPS]) {
    match values {
        Floats::F32(values) => turn_as(values, part, out),
        Floats::F16(values) => turn_as(values, part, out),
        Floats::Bf16(values) => turn_as(values, part, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn turn_as<T: Quarters>(values: &[T], part: &Part<LANES>, out: &mut [[f32; LANES]; GROUPS]) {
    let mut copy = None;
    let (values, stride) = part.of(values, &mut copy);
    for (at, out) in (0..part.len()).step_by(T::COUNT).zip(out.chunks_exact_mut(T::COUNT)) {
        let mut columns = [_mm256_setzero_ps(); 4];
        for (i, columns) in columns.iter_mut().enumerate() {
            // SAFETY: the part has so many columns, and values in whole quarters.
            let (low, high) =
                unsafe { (quarter(values, i * stride + at), quarter(values, (i + 4) * stride + at)) };
            *columns = _mm256_castsi256_ps(_mm256_set_m128i(high, low));
        }
        for (turned, out) in transpose(columns).into_iter().zip(out.chunks_exact_mut(T::COUNT / 4)) {
            // SAFETY: the features are enabled here.
            unsafe { T::widen(_mm256_castps_si256(turned), out) };
        }
    }
}

/// The bits of `COUNT` values from `at` on.
///
/// # Safety
/// They are in the slice.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn quarter<T: Quarters>(values: &[T], at: usize) -> __m128i {
    debug_assert!(at + T::COUNT <= values.len());
    // SAFETY: by the caller's promise.
    unsafe { _mm_loadu_si128(values.as_ptr().add(at).cast()) }
}

/// A float format that is turned by 32 bits: as single elements or as pairs.
pub(crate) trait Quarters: Pod {
    /// Elements of 16 bytes.
    const COUNT: usize = 16 / size_of::<Self>();

    /// The elements of each column as float32, one vector for each that a column has.
    ///
    /// # Safety
    /// The machine has AVX2 and F16C.
    unsafe fn widen(columns: __m256i, out: &mut [[f32; LANES]]);
}

impl Quarters for f32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(columns: __m256i, out: &mut [[f32; LANES]]) {
        out[0] = must_cast(columns);
    }
}

impl Quarters for f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(columns: __m256i, out: &mut [[f32; LANES]]) {
        let order = _mm256_setr_epi8(
            0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10,
            11, 14, 15,
        );
        // First elements of all pairs, then second ones.
        let parted = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(columns, order));
        let halves: [__m128i; 2] = must_cast(parted);
        for (out, half) in out.iter_mut().zip(halves) {
            *out = must_cast(_mm256_cvtph_ps(half));
        }
    }
}

impl Quarters for bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(columns: __m256i, out: &mut [[f32; LANES]]) {
        out[0] = must_cast(_mm256_slli_epi32::<16>(columns));
        out[1] = must_cast(_mm256_and_si256(columns, _mm256_set1_epi32(0xffff_0000_u32.cast_signed())));
    }
}
