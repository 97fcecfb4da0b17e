//! Depthwise causal convolution of one token's channels.

use std::arch::x86_64::*;
use std::ops::Range;

use super::exp::silu;
use super::lanes::{LANES, load, load_some, store, store_some};
use crate::ops::ConvInputs;

/// Taps that are added in one pass over the channels: the usual kernel has as many.
const FEW: usize = 4;

/// `out` = token `t` of the convolution, for the channels `channels`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn token(inputs: &ConvInputs<'_>, channels: &Range<usize>, t: usize, out: &mut [f32]) {
    out.fill(0.0);
    for first in (0..inputs.args.kernel).step_by(FEW) {
        let tap = |tap: usize| inputs.tap(t, first + tap, channels);
        let activate = inputs.args.silu && first + FEW >= inputs.args.kernel;
        match inputs.args.kernel - first {
            1 => add([tap(0)], activate, out),
            2 => add([tap(0), tap(1)], activate, out),
            3 => add([tap(0), tap(1), tap(2)], activate, out),
            _ => add([tap(0), tap(1), tap(2), tap(3)], activate, out),
        }
    }
}

/// `out` += the sum over (weights, inputs) of their products, followed by silu if asked for.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const N: usize>(taps: [(&[f32], &[f32]); N], activate: bool, out: &mut [f32]) {
    let (chunks, tail) = out.as_chunks_mut::<LANES>();
    let whole = chunks.len() * LANES;
    for (i, out) in chunks.iter_mut().enumerate() {
        let mut acc = load(out);
        for (weights, input) in taps {
            let (weights, input) = (weights.as_chunks().0, input.as_chunks().0);
            acc = _mm256_fmadd_ps(load(&weights[i]), load(&input[i]), acc);
        }
        store(if activate { silu(acc) } else { acc }, out);
    }
    if !tail.is_empty() {
        let mut acc = load_some(tail);
        for (weights, input) in taps {
            acc = _mm256_fmadd_ps(load_some(&weights[whole..]), load_some(&input[whole..]), acc);
        }
        store_some(if activate { silu(acc) } else { acc }, tail);
    }
}
