//! The exponential of eight floats, and the functions made of it.

use std::arch::x86_64::*;

use super::lanes::LANES;

/// e^x to about one unit in the last place, subnormal results included. Too large gives infinity, NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series to the seventh power, whose remainder is below 6e-9.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn exp(x: __m256) -> __m256 {
    // Bounds just past overflow and underflow to zero. `min` and `max` return the second operand for NaN.
    let x = _mm256_max_ps(_mm256_set1_ps(-104.0), _mm256_min_ps(_mm256_set1_ps(89.0), x));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        x,
        _mm256_set1_ps(std::f32::consts::LOG2_E),
    ));
    // ln 2 in two parts; the first has so few bits that its product with n is exact.
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693_359_4), x);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
    let power = polynomial(r, [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0]);
    // 2^n in two factors, since n itself may lie outside of the exponents of float32.
    let n = _mm256_cvtps_epi32(n);
    let half = _mm256_srai_epi32::<1>(n);
    let rest = _mm256_sub_epi32(n, half);
    _mm256_mul_ps(_mm256_mul_ps(power, power_of_2(half)), power_of_2(rest))
}

/// 2^n for n within the exponents of normal numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn power_of_2(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// Coefficients from the highest power down.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn polynomial(x: __m256, coefficients: [f32; LANES]) -> __m256 {
    let mut y = _mm256_set1_ps(coefficients[0]);
    for c in &coefficients[1..] {
        y = _mm256_fmadd_ps(y, x, _mm256_set1_ps(*c));
    }
    y
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn negative(x: __m256) -> __m256 {
    _mm256_xor_ps(x, _mm256_set1_ps(-0.0))
}

/// 1 / (1 + e^-x).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn sigmoid(x: __m256) -> __m256 {
    let one = _mm256_set1_ps(1.0);
    _mm256_div_ps(one, _mm256_add_ps(one, exp(negative(x))))
}

/// x * sigmoid(x).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn silu(x: __m256) -> __m256 {
    _mm256_mul_ps(x, sigmoid(x))
}

/// log(1 + e^x) = max(x, 0) + log(1 + y) with y = e^-|x| <= 1.
///
/// log(1 + y) = 2 artanh(s) with s = y / (2 + y) <= 1/3, by its series to s^15, whose remainder is below 2e-9 of it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn softplus(x: __m256) -> __m256 {
    let y = exp(_mm256_or_ps(x, _mm256_set1_ps(-0.0)));
    let s = _mm256_div_ps(y, _mm256_add_ps(_mm256_set1_ps(2.0), y));
    let series = polynomial(
        _mm256_mul_ps(s, s),
        [2.0 / 15.0, 2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0],
    );
    // The second operand is the result for NaN.
    _mm256_fmadd_ps(s, series, _mm256_max_ps(_mm256_setzero_ps(), x))
}
