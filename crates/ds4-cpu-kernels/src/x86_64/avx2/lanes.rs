//! Vectors of eight floats: loading, storing, and walking over slices.

use std::arch::x86_64::*;

use bytemuck::must_cast;
use half::{bf16, f16};

pub(crate) use crate::rows::LANES;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load(x: &[f32; LANES]) -> __m256 {
    must_cast(*x)
}

/// Up to eight floats, followed by zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load_some(x: &[f32]) -> __m256 {
    match x.first_chunk() {
        Some(x) => load(x),
        None => {
            let mut padded = [0.0; LANES];
            padded[..x.len()].copy_from_slice(x);
            load(&padded)
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store(v: __m256, out: &mut [f32; LANES]) {
    *out = must_cast(v);
}

/// The first `out.len()` lanes of `v`, at most eight.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store_some(v: __m256, out: &mut [f32]) {
    match out.first_chunk_mut() {
        Some(out) => store(v, out),
        None => {
            let lanes: [f32; LANES] = must_cast(v);
            let len = out.len();
            out.copy_from_slice(&lanes[..len]);
        }
    }
}

/// The first `out.len()` lanes of `v`, at most four. A copy of a length that varies would be a call.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store_first(v: __m128, out: &mut [f32]) {
    let pair = |v: __m128| must_cast::<i64, [f32; 2]>(_mm_cvtsi128_si64(_mm_castps_si128(v)));
    let upper = _mm_movehl_ps(v, v);
    match out {
        [a] => *a = _mm_cvtss_f32(v),
        [a, b] => [*a, *b] = pair(v),
        [a, b, c] => {
            [*a, *b] = pair(v);
            *c = _mm_cvtss_f32(upper);
        }
        _ => out.copy_from_slice(&must_cast::<__m128, [f32; 4]>(v)),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widen_f16(x: &[f16; LANES]) -> __m256 {
    _mm256_cvtph_ps(must_cast(*x))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widen_bf16(x: &[bf16; LANES]) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(must_cast(*x))))
}

/// Sum of the lanes: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn sum(v: __m256) -> f32 {
    _mm_cvtss_f32(sum_of_4([v; 4]))
}

/// The sums of the lanes of four vectors, each added in the order of [`sum`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn sum_of_4([a, b, c, d]: [__m256; 4]) -> __m128 {
    let quarters = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_add_ps(_mm256_castps256_ps128(quarters), _mm256_extractf128_ps::<1>(quarters))
}

/// Element `t` of all columns for each `t`, out of four elements of columns `i` and `i + 4` for each `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn transpose([a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
    let (ab, cd) = (_mm256_castps_pd(ab), _mm256_castps_pd(cd));
    let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
    let (ab_high, cd_high) = (_mm256_castps_pd(ab_high), _mm256_castps_pd(cd_high));
    [
        _mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),
        _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)),
        _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high)),
        _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high)),
    ]
}

/// The largest lane of numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn max(v: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
}

/// Sum of `f(x, y)` over slices of equal length, in one vector of partial sums. `f(0, 0)` must be 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn fold(x: &[f32], f: impl Fn(__m256, __m256) -> __m256) -> __m256 {
    let (chunks, tail) = x.as_chunks();
    let mut acc = _mm256_setzero_ps();
    for x in chunks {
        acc = f(acc, load(x));
    }
    if tail.is_empty() { acc } else { f(acc, load_some(tail)) }
}

/// `x` = f(`x`).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn update(x: &mut [f32], f: impl Fn(__m256) -> __m256) {
    let (chunks, tail) = x.as_chunks_mut();
    for x in chunks {
        store(f(load(x)), x);
    }
    if !tail.is_empty() {
        store_some(f(load_some(tail)), tail);
    }
}

/// `x` = f(`x`, `y`), with `y` at least as long.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn update_with(x: &mut [f32], y: &[f32], f: impl Fn(__m256, __m256) -> __m256) {
    let y = &y[..x.len()];
    let ((chunks, tail), (y_chunks, y_tail)) = (x.as_chunks_mut(), y.as_chunks());
    for (x, y) in chunks.iter_mut().zip(y_chunks) {
        store(f(load(x), load(y)), x);
    }
    if !tail.is_empty() {
        store_some(f(load_some(tail), load_some(y_tail)), tail);
    }
}

/// `out` = f(`x`), with `x` as long.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn map(x: &[f32], out: &mut [f32], f: impl Fn(__m256) -> __m256) {
    map_2(x, x, out, |x, _| f(x));
}

/// `out` = f(`a`, `b`), with all as long.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn map_2(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(__m256, __m256) -> __m256) {
    let ((a, a_tail), (b, b_tail), (out, tail)) = (a.as_chunks(), b.as_chunks(), out.as_chunks_mut());
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        store(f(load(a), load(b)), out);
    }
    if !tail.is_empty() {
        store_some(f(load_some(a_tail), load_some(b_tail)), tail);
    }
}
