//! Pooling of a window of rows, each channel weighted by a softmax over the window.

use std::arch::x86_64::*;

use super::exp::exp;
use super::lanes::{LANES, load_some, store_some};

/// `out[c]` = softmax-weighted mean of column `c`; `values` and `gates` have rows as wide as `out`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn window(values: &[f32], gates: &[f32], out: &mut [f32]) {
    let width = out.len();
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let columns = i * LANES..i * LANES + out.len();
        let mut largest = _mm256_set1_ps(f32::NEG_INFINITY);
        for gates in gates.chunks_exact(width) {
            largest = _mm256_max_ps(load_some(&gates[columns.clone()]), largest);
        }
        let (mut total, mut sum) = (_mm256_setzero_ps(), _mm256_setzero_ps());
        for (values, gates) in values.chunks_exact(width).zip(gates.chunks_exact(width)) {
            let weight = exp(_mm256_sub_ps(load_some(&gates[columns.clone()]), largest));
            total = _mm256_add_ps(total, weight);
            sum = _mm256_fmadd_ps(weight, load_some(&values[columns.clone()]), sum);
        }
        store_some(_mm256_div_ps(sum, total), out);
    }
}
