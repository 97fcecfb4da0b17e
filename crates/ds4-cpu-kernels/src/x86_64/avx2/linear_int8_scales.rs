//! Scales and biases of eight weight rows, turned so that those of a group lie in one vector.

use std::arch::x86_64::*;

use bytemuck::{Pod, cast_slice, must_cast};
use ds4_dtype::Floats;
use half::{bf16, f16};

use super::lanes::{LANES, transpose};
use crate::prefetch;

/// Groups of a panel at most: 1024 elements in groups of 32.
pub(crate) const GROUPS: usize = 32;

/// Of each group, the scales and the biases of eight columns.
pub(crate) struct ScalePanel {
    pub(crate) scales: [[f32; LANES]; GROUPS],
    pub(crate) biases: [[f32; LANES]; GROUPS],
}

impl ScalePanel {
    pub(crate) fn new() -> Self {
        Self { scales: [[0.0; LANES]; GROUPS], biases: [[0.0; LANES]; GROUPS] }
    }
}

/// `out[i][c]` = element `first + i` of row `rows[c]` of `values`, which has rows of `width` elements; for `count` of `i`.
/// `rows` ascends. What stands `ahead` rows further down is fetched.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn turn(
    values: Floats<'_>,
    rows: &[usize; LANES],
    ahead: usize,
    width: usize,
    first: usize,
    count: usize,
    out: &mut [[f32; LANES]; GROUPS],
) {
    match values {
        Floats::F32(values) => turn_as(values, rows, ahead, width, first, count, out),
        Floats::F16(values) => turn_as(values, rows, ahead, width, first, count, out),
        Floats::Bf16(values) => turn_as(values, rows, ahead, width, first, count, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn turn_as<T: Quarters>(
    values: &[T],
    rows: &[usize; LANES],
    ahead: usize,
    width: usize,
    first: usize,
    count: usize,
    out: &mut [[f32; LANES]; GROUPS],
) {
    assert!(rows.is_sorted(), "rows in another order");
    prefetch::line(values.as_ptr().wrapping_add((rows[0] + ahead) * width + first));
    prefetch::line(values.as_ptr().wrapping_add((rows[4] + ahead) * width + first));
    for (at, out) in (first..first + count).step_by(T::COUNT).zip(out.chunks_exact_mut(T::COUNT)) {
        // A row's last elements are followed by those of the next, which nobody uses. The last row is the furthest down.
        let whole = rows[LANES - 1] * width + at + T::COUNT <= values.len();
        // SAFETY: as was just found.
        let quarter = |c: usize| unsafe { quarter(values, rows[c] * width + at, whole) };
        let mut columns = [_mm256_setzero_ps(); 4];
        for (i, columns) in columns.iter_mut().enumerate() {
            *columns = _mm256_castsi256_ps(_mm256_set_m128i(quarter(i + 4), quarter(i)));
        }
        for (turned, out) in transpose(columns).into_iter().zip(out.chunks_exact_mut(T::COUNT / 4)) {
            // SAFETY: the features are enabled here.
            unsafe { T::widen(_mm256_castps_si256(turned), out) };
        }
    }
}

/// The bits of `COUNT` elements from `at` on, or, where that is not the `whole`, of those that are there, and zeros.
///
/// # Safety
/// If it is the whole, they are in the slice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn quarter<T: Quarters>(values: &[T], at: usize, whole: bool) -> __m128i {
    if whole {
        // SAFETY: by the caller's promise.
        return unsafe { _mm_loadu_si128(values.as_ptr().add(at).cast()) };
    }
    let some = &values[at..];
    let bytes: &[u8] = cast_slice(&some[..T::COUNT.min(some.len())]);
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    must_cast(padded)
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
        let pairs: [[Self; 2]; LANES] = must_cast(columns);
        for i in 0..2 {
            out[i] = must_cast(_mm256_cvtph_ps(must_cast(pairs.map(|pair| pair[i]))));
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
