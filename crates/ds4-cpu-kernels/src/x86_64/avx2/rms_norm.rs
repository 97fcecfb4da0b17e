//! Root-mean-square normalisation.

use std::arch::x86_64::*;

use super::lanes::{fold, map, map_2, sum};

/// Rows of `width` elements, normalised by groups; `weight` is the effective factor of each column.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows(x: &[f32], weight: Option<&[f32]>, width: usize, group: usize, eps: f32, out: &mut [f32]) {
    for (i, (x, out)) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate() {
        let squares = sum(fold(x, |acc, x| _mm256_fmadd_ps(x, x, acc)));
        let scale = _mm256_set1_ps(1.0 / (squares / group as f32 + eps).sqrt());
        let first = i * group % width;
        match weight {
            Some(weight) => map_2(x, &weight[first..first + group], out, |x, weight| {
                _mm256_mul_ps(_mm256_mul_ps(x, scale), weight)
            }),
            None => map(x, out, |x| _mm256_mul_ps(x, scale)),
        }
    }
}
