//! The gated delta rule on some columns of one head's state.
//!
//! One pass over the state a token: the pass that writes token `t` also reads for the key of token `t + 1`.

use std::arch::x86_64::*;

use super::delta_columns::{leave_vectors, store_vectors, vectors};
use super::lanes::LANES;
use crate::GatedDeltaArgs;
use crate::disjoint::Columns;
use crate::ops::{DeltaBlock, StateBlock};

/// One head of a call.
struct Head<'a> {
    args: &'a GatedDeltaArgs<'a>,
    decay: &'a [f32],
    block: DeltaBlock,
}

impl Head<'_> {
    #[inline]
    fn key_at(&self, t: usize) -> usize {
        let GatedDeltaArgs { key_heads, value_heads, dk, .. } = *self.args;
        (t * key_heads + self.block.head / (value_heads / key_heads)) * dk
    }

    #[inline]
    fn q(&self, t: usize) -> &[f32] {
        &self.args.q[self.key_at(t)..][..self.args.dk]
    }

    #[inline]
    fn k(&self, t: usize) -> &[f32] {
        &self.args.k[self.key_at(t)..][..self.args.dk]
    }
}

/// Lets all tokens stream over a block of columns.
///
/// `decay` is exp(g), [L, value_heads]; `state` the columns of that head's state, `out` those of the output.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn columns(
    args: &GatedDeltaArgs<'_>,
    decay: &[f32],
    block: DeltaBlock,
    state: &mut StateBlock<'_>,
    out: &mut Columns<'_, f32>,
) {
    let head = Head { args, decay, block };
    let width = state.width();
    let mut at = 0;
    while at + 4 * LANES <= width {
        stream::<4>(&head, at, 4 * LANES, state, out);
        at += 4 * LANES;
    }
    while at < width {
        let step = LANES.min(width - at);
        stream::<1>(&head, at, step, state, out);
        at += step;
    }
}

/// The columns `at..at + width` of the task's, held in `N` vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn stream<const N: usize>(
    head: &Head<'_>,
    at: usize,
    width: usize,
    state: &mut StateBlock<'_>,
    out: &mut Columns<'_, f32>,
) {
    let GatedDeltaArgs { value_heads, dv, .. } = *head.args;
    let tokens = head.args.g.len() / value_heads;
    if tokens == 0 {
        return;
    }
    let mut remembered = recall::<N>(head.k(0), at, width, state);
    for t in 0..tokens {
        let scalars = t * value_heads + head.block.head;
        let decay = _mm256_set1_ps(head.decay[scalars]);
        let beta = _mm256_set1_ps(head.args.beta[scalars]);
        let v: [__m256; N] = vectors(&head.args.v[scalars * dv + head.block.first + at..][..width]);
        // The decay of the whole state is a factor of what it remembers.
        let mut delta = [_mm256_setzero_ps(); N];
        for n in 0..N {
            delta[n] = _mm256_mul_ps(_mm256_fnmadd_ps(remembered[n], decay, v[n]), beta);
        }
        let next = if t + 1 < tokens { head.k(t + 1) } else { head.k(t) };
        let keys = head.q(t).iter().zip(head.k(t)).zip(next);
        let last = if t + 1 < tokens { None } else { state.last() };
        let mut result = [_mm256_setzero_ps(); N];
        remembered = result;
        for (i, ((q, k), next)) in keys.enumerate() {
            let (q, k, next) = (_mm256_set1_ps(*q), _mm256_set1_ps(*k), _mm256_set1_ps(*next));
            head.block.prefetch(t, i);
            let row = &mut state.row(i)[at..at + width];
            let mut s: [__m256; N] = vectors(row);
            for n in 0..N {
                s[n] = _mm256_fmadd_ps(k, delta[n], _mm256_mul_ps(s[n], decay));
                result[n] = _mm256_fmadd_ps(q, s[n], result[n]);
                remembered[n] = _mm256_fmadd_ps(next, s[n], remembered[n]);
            }
            match last {
                Some(streams) => leave_vectors(s, &mut state.last_row(i)[at..at + width], streams),
                None => store_vectors(s, row),
            }
        }
        store_vectors(result, &mut out.row(t)[at..at + width]);
    }
}

/// State transposed, times `k`: in the same order as the loop over tokens adds it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn recall<const N: usize>(k: &[f32], at: usize, width: usize, state: &mut StateBlock<'_>) -> [__m256; N] {
    let mut remembered = [_mm256_setzero_ps(); N];
    for (i, k) in k.iter().enumerate() {
        let s: [__m256; N] = vectors(&state.row(i)[at..at + width]);
        for n in 0..N {
            remembered[n] = _mm256_fmadd_ps(_mm256_set1_ps(*k), s[n], remembered[n]);
        }
    }
    remembered
}
