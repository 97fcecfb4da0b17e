//! A softmax-weighted sum of rows that takes in its terms a tile at a time.

use std::arch::x86_64::*;

use super::exp::exp;
use super::lanes::{LANES, fold, load, map, store, sum, update};
use super::reduce::largest;

/// What is known of a weighted sum after some of its terms.
pub(crate) struct RunningSoftmax {
    /// Largest score so far.
    max: f32,
    /// Sum of exp(score - max).
    weight: f32,
    /// Sum of exp(score - max) * value, in vectors.
    values: Vec<[f32; LANES]>,
}

impl RunningSoftmax {
    /// A sum over rows of `vectors` vectors that begins with a score without a value.
    pub(crate) fn with_sink(sink: f32, vectors: usize) -> Self {
        Self { max: sink, weight: 1.0, values: vec![[0.0; LANES]; vectors] }
    }

    /// Takes in a row of `values` for each score. Overwrites the scores.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn add(&mut self, scores: &mut [f32], values: &[[f32; LANES]]) {
        let max = self.max.max(largest(scores));
        let factor = sum(exp(_mm256_setr_ps(self.max - max, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9)));
        self.max = max;
        let max = _mm256_set1_ps(max);
        update(scores, |score| exp(_mm256_sub_ps(score, max)));
        self.weight = self.weight * factor + sum(fold(scores, |acc, weight| _mm256_add_ps(acc, weight)));
        let factor = _mm256_set1_ps(factor);
        let width = self.values.len();
        let (groups, rest) = self.values.as_chunks_mut::<8>();
        for (g, group) in groups.iter_mut().enumerate() {
            add_values(group, 8 * g, factor, scores, values, width);
        }
        let done = 8 * groups.len();
        for (v, vector) in rest.as_chunks_mut::<1>().0.iter_mut().enumerate() {
            add_values(vector, done + v, factor, scores, values, width);
        }
    }

    /// The weighted sum.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn finish(&self, out: &mut [f32]) {
        let factor = _mm256_set1_ps(1.0 / self.weight);
        map(&self.values.as_flattened()[..out.len()], out, |v| _mm256_mul_ps(v, factor));
    }
}

/// `acc` = `acc` * factor + the weighted sum of the vectors from `at` on of the rows of `values`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_values<const N: usize>(
    acc: &mut [[f32; LANES]; N],
    at: usize,
    factor: __m256,
    weights: &[f32],
    values: &[[f32; LANES]],
    width: usize,
) {
    let mut sums = [_mm256_setzero_ps(); N];
    for n in 0..N {
        sums[n] = _mm256_mul_ps(load(&acc[n]), factor);
    }
    for (weight, row) in weights.iter().zip(values.chunks_exact(width)) {
        let weight = _mm256_set1_ps(*weight);
        let row = &row[at..at + N];
        for n in 0..N {
            sums[n] = _mm256_fmadd_ps(weight, load(&row[n]), sums[n]);
        }
    }
    for n in 0..N {
        store(sums[n], &mut acc[n]);
    }
}
