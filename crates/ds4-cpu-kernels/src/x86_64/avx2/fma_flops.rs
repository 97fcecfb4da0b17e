//! Multiply-adds on registers.

use std::arch::x86_64::*;

use super::lanes::{LANES, sum};

/// More chains than latency times throughput of any processor with AVX2.
const CHAINS: usize = 12;

/// Runs the loop; the result only keeps it from being removed.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn spin(iterations: usize) -> f32 {
    let (a, b) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
    let mut sums = [_mm256_set1_ps(1.0); CHAINS];
    for _ in 0..iterations {
        sums = sums.map(|sum| _mm256_fmadd_ps(sum, a, b));
    }
    sum(sums.into_iter().fold(_mm256_setzero_ps(), |x, y| _mm256_add_ps(x, y)))
}

/// Operations in `iterations` rounds.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn operations(iterations: usize) -> usize {
    iterations * CHAINS * LANES * 2
}
