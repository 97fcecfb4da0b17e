//! Multiply-adds on registers.

use std::arch::x86_64::*;

use super::lanes::{LANES, sum};

/// More chains than latency times throughput of any processor with AVX2.
const CHAINS: usize = 12;

/// Runs the loop; the result only keeps it from being removed.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn spin(iterations: usize) -> f32 {
    // Hidden from the compiler, which would otherwise find out that the sums converge and drop the loop.
    let [a, b, start] = std::hint::black_box([0.999, 0.001, 2.0]).map(|x| _mm256_set1_ps(x));
    let mut sums: [__m256; CHAINS] = std::array::from_fn(|i| _mm256_mul_ps(start, _mm256_set1_ps(i as f32)));
    for _ in 0..iterations {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    sum(sums.into_iter().fold(_mm256_setzero_ps(), |x, y| _mm256_add_ps(x, y)))
}

/// Operations in `iterations` rounds.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn operations(iterations: usize) -> usize {
    iterations * CHAINS * LANES * 2
}
