//! Depthwise causal convolution of one token's channels.

use crate::CausalConv1dArgs;
use crate::ops::Channels;
use crate::scalar::unary::silu;

/// `out` [kernel, channels] = `weights` [channels, kernel].
pub(crate) fn by_tap(weights: &[f32], kernel: usize, out: &mut [f32]) {
    let channels = weights.len() / kernel;
    for (c, weights) in weights.chunks_exact(kernel).enumerate() {
        for (j, weight) in weights.iter().enumerate() {
            out[j * channels + c] = *weight;
        }
    }
}

/// `out` = token `t` of the convolution, for some channels.
pub(crate) fn token(args: &CausalConv1dArgs<'_>, channels: &Channels, t: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (j, weights) in channels.taps.chunks_exact(out.len()).enumerate() {
        for ((out, w), x) in out.iter_mut().zip(weights).zip(args.input(t, j, channels)) {
            *out += w * x;
        }
    }
    if args.silu {
        out.iter_mut().for_each(|out| *out = silu(*out));
    }
}
