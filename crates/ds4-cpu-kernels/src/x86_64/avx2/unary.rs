//! Functions of one element.

use std::arch::x86_64::*;

use super::exp::{exp, negative, sigmoid, silu, softplus};
use super::lanes::update;
use crate::UnaryOp;

/// `x` = op(`x`).
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn in_place(op: UnaryOp, x: &mut [f32]) {
    match op {
        UnaryOp::Exp => update(x, |x| exp(x)),
        UnaryOp::Sigmoid => update(x, |x| sigmoid(x)),
        UnaryOp::Silu => update(x, |x| silu(x)),
        UnaryOp::Softplus => update(x, |x| softplus(x)),
        UnaryOp::SignedSqrt => update(x, |x| signed_sqrt(x)),
        UnaryOp::Neg => update(x, |x| negative(x)),
        UnaryOp::Sqrt => update(x, |x| _mm256_sqrt_ps(x)),
        UnaryOp::Square => update(x, |x| _mm256_mul_ps(x, x)),
        UnaryOp::Abs => update(x, |x| _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)),
        UnaryOp::Relu => update(x, |x| _mm256_max_ps(_mm256_setzero_ps(), x)),
        UnaryOp::Reciprocal => update(x, |x| _mm256_div_ps(_mm256_set1_ps(1.0), x)),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn signed_sqrt(x: __m256) -> __m256 {
    let sign = _mm256_set1_ps(-0.0);
    let size = _mm256_max_ps(_mm256_set1_ps(1e-6), _mm256_andnot_ps(sign, x));
    let root = _mm256_or_ps(_mm256_sqrt_ps(size), _mm256_and_ps(sign, x));
    // Unordered or different: NaN passes, both zeros become +0.
    _mm256_and_ps(root, _mm256_cmp_ps::<_CMP_NEQ_UQ>(x, _mm256_setzero_ps()))
}
