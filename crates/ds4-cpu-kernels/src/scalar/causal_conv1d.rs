//! Depthwise causal convolution of one token's channels.

use std::ops::Range;

use crate::CausalConv1dArgs;
use crate::scalar::unary::silu;

/// `out` = token `t` of the convolution, for the channels `channels`.
pub(crate) fn token(args: &CausalConv1dArgs<'_>, channels: &Range<usize>, t: usize, out: &mut [f32]) {
    out.fill(0.0);
    for tap in 0..args.kernel {
        let (weights, input) = args.tap(t, tap, channels);
        for ((out, w), x) in out.iter_mut().zip(weights).zip(input) {
            *out += w * x;
        }
    }
    if args.silu {
        out.iter_mut().for_each(|out| *out = silu(*out));
    }
}
