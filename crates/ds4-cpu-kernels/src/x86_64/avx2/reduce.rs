//! Sums, means and maxima.

use std::arch::x86_64::*;

use super::lanes::{fold, load, max, sum};
use crate::ReduceOp;

/// op of one row.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(op: ReduceOp, x: &[f32]) -> f32 {
    let total = || sum(fold(x, |acc, x| _mm256_add_ps(acc, x)));
    match op {
        ReduceOp::Sum => total(),
        ReduceOp::Mean => total() / x.len() as f32,
        ReduceOp::Max if x.iter().any(|x| x.is_nan()) => f32::NAN,
        ReduceOp::Max => largest(x),
    }
}

/// The largest element that is a number.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn largest(x: &[f32]) -> f32 {
    let (chunks, tail) = x.as_chunks();
    let mut vector = _mm256_set1_ps(f32::NEG_INFINITY);
    for x in chunks {
        // The second operand is the result for NaN.
        vector = _mm256_max_ps(load(x), vector);
    }
    tail.iter().copied().fold(max(vector), f32::max)
}
