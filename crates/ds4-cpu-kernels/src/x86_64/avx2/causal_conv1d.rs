//! Depthwise causal convolution of one token's channels.

use std::arch::x86_64::*;

use super::exp::silu;
use super::lanes::{LANES, load, load_some, store, store_some, transpose};
use crate::ops::Channels;
use crate::{CausalConv1dArgs, scalar};

/// Taps that are added in one pass over the channels; the usual kernels have no more.
const FEW: usize = 8;

/// `out` [kernel, channels] = `weights` [channels, kernel].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn by_tap(weights: &[f32], kernel: usize, out: &mut [f32]) {
    // The usual kernel of a delta net: for a single token this takes longer than the products.
    const TAPS: usize = 4;
    let channels = weights.len() / kernel;
    if kernel != TAPS || !channels.is_multiple_of(LANES) {
        return scalar::causal_conv1d::by_tap(weights, kernel, out);
    }
    let eights = weights.as_chunks::<TAPS>().0.as_chunks::<LANES>().0;
    for (i, [a, b, c, d, e, f, g, h]) in eights.iter().enumerate() {
        let by_tap = transpose([pair(a, e), pair(b, f), pair(c, g), pair(d, h)]);
        for (tap, vector) in by_tap.into_iter().enumerate() {
            store_some(vector, &mut out[tap * channels + i * LANES..][..LANES]);
        }
    }
}

/// The four elements of each, in the halves of a vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pair(low: &[f32; 4], high: &[f32; 4]) -> __m256 {
    _mm256_set_m128(bytemuck::must_cast(*high), bytemuck::must_cast(*low))
}

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
