//! Functions of two elements.

use std::arch::x86_64::*;

use super::lanes::{update, update_with};
use crate::BinaryOp;

/// `a[i]` = `a[i]` op `b[i]`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn in_place(op: BinaryOp, a: &mut [f32], b: &[f32]) {
    match op {
        BinaryOp::Add => update_with(a, b, |a, b| _mm256_add_ps(a, b)),
        BinaryOp::Sub => update_with(a, b, |a, b| _mm256_sub_ps(a, b)),
        BinaryOp::Mul => update_with(a, b, |a, b| _mm256_mul_ps(a, b)),
        BinaryOp::Div => update_with(a, b, |a, b| _mm256_div_ps(a, b)),
        BinaryOp::Max => update_with(a, b, |a, b| _mm256_max_ps(a, b)),
        BinaryOp::Min => update_with(a, b, |a, b| _mm256_min_ps(a, b)),
    }
}

/// `a[i]` = `a[i]` op `b`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn with_value(op: BinaryOp, a: &mut [f32], b: f32) {
    let b = _mm256_set1_ps(b);
    match op {
        BinaryOp::Add => update(a, |a| _mm256_add_ps(a, b)),
        BinaryOp::Sub => update(a, |a| _mm256_sub_ps(a, b)),
        BinaryOp::Mul => update(a, |a| _mm256_mul_ps(a, b)),
        BinaryOp::Div => update(a, |a| _mm256_div_ps(a, b)),
        BinaryOp::Max => update(a, |a| _mm256_max_ps(a, b)),
        BinaryOp::Min => update(a, |a| _mm256_min_ps(a, b)),
    }
}
