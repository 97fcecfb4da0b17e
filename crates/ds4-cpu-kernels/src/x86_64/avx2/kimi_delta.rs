//! The delta rule with a decay for every channel, on some columns of one head's state.
//!
//! One pass over the state a token: the pass that writes token `t` also reads for the key of token `t + 1`. What the decayed
//! state remembers for a key is what the state remembers for the key times the decay.

use std::arch::x86_64::*;

use super::delta_columns::{leave_vectors, store_vectors, vectors};
use super::lanes::LANES;
use crate::KimiDeltaArgs;
use crate::disjoint::Columns;
use crate::ops::{DeltaBlock, StateBlock};

/// One head of a call.
struct Head<'a> {
    args: &'a KimiDeltaArgs<'a>,
    decay: &'a [f32],
    block: DeltaBlock,
}

impl<'a> Head<'a> {
    /// The head's part, `width` long, of token `t` of `x`.
    #[inline]
    fn part(&self, x: &'a [f32], t: usize, width: usize) -> &'a [f32] {
        &x[(t * self.args.heads + self.block.head) * width..][..width]
    }

    #[inline]
    fn decay(&self, t: usize) -> &'a [f32] {
        self.part(self.decay, t, self.args.dk)
    }

    #[inline]
    fn k(&self, t: usize) -> &'a [f32] {
        self.part(self.args.k, t, self.args.dk)
    }
}

/// Lets all tokens stream over a block of columns.
///
/// `decay` is exp(g), [L, heads, dk]; `state` the columns of that head's state, `out` those of the output.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn columns(
    args: &KimiDeltaArgs<'_>,
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
    let KimiDeltaArgs { q, v, beta, heads, dk, dv, .. } = *head.args;
    let tokens = beta.len() / heads;
    if tokens == 0 {
        return;
    }
    let mut remembered = recall::<N>(head, at, width, state);
    for t in 0..tokens {
        let beta = _mm256_set1_ps(beta[t * heads + head.block.head]);
        let v: [__m256; N] = vectors(&head.part(v, t, dv)[head.block.first + at..][..width]);
        let mut delta = [_mm256_setzero_ps(); N];
        for n in 0..N {
            delta[n] = _mm256_mul_ps(_mm256_sub_ps(v[n], remembered[n]), beta);
        }
        let next = if t + 1 < tokens { t + 1 } else { t };
        let here = head.part(q, t, dk).iter().zip(head.k(t)).zip(head.decay(t));
        let ahead = head.k(next).iter().zip(head.decay(next));
        let last = if t + 1 < tokens { None } else { state.last() };
        let mut result = [_mm256_setzero_ps(); N];
        remembered = result;
        for (i, (((q, k), decay), (next, next_decay))) in here.zip(ahead).enumerate() {
            let (q, k, decay) = (_mm256_set1_ps(*q), _mm256_set1_ps(*k), _mm256_set1_ps(*decay));
            let next = _mm256_set1_ps(next * next_decay);
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

/// What the state remembers for the first token: in the same order as the loop over tokens adds it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn recall<const N: usize>(
    head: &Head<'_>,
    at: usize,
    width: usize,
    state: &mut StateBlock<'_>,
) -> [__m256; N] {
    let mut remembered = [_mm256_setzero_ps(); N];
    for (i, (k, decay)) in head.k(0).iter().zip(head.decay(0)).enumerate() {
        let s: [__m256; N] = vectors(&state.row(i)[at..at + width]);
        for n in 0..N {
            remembered[n] = _mm256_fmadd_ps(_mm256_set1_ps(k * decay), s[n], remembered[n]);
        }
    }
    remembered
}
