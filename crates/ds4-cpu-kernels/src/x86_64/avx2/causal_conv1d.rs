//! Depthwise causal convolution of one token's channels.

use std::arch::x86_64::*;

use super::exp::silu;
use super::lanes::{LANES, load, load_some, store, store_some};
use crate::CausalConv1dArgs;
use crate::ops::Channels;

/// Taps that are added in one pass over the channels; the usual kernels have no more.
const FEW: usize = 8;

/// `out` = token `t` of the convolution, for some channels.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn token(args: &CausalConv1dArgs<'_>, channels: &Channels, t: usize, out: &mut [f32]) {
    let width = out.len();
    out.fill(0.0);
    for first in (0..args.kernel).step_by(FEW) {
        let count = FEW.min(args.kernel - first);
        let mut taps = [([].as_slice(), [].as_slice()); FEW];
        for (j, tap) in taps[..count].iter_mut().enumerate() {
            let weights = &channels.taps[(first + j) * width..][..width];
            *tap = (weights, args.input(t, first + j, channels));
        }
        add(&taps[..count], first + count == args.kernel && args.silu, out);
    }
}

/// `out` += the sum over (weights, inputs) of their products, followed by silu if asked for.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add(taps: &[(&[f32], &[f32])], activate: bool, out: &mut [f32]) {
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
