//! Depthwise causal convolution of one token's channels.

use std::ops::Range;

use crate::ops::ConvInputs;
use crate::scalar::unary::silu;

/// `out` = token `t` of the convolution, for the channels `channels`.
pub(crate) fn token(inputs: &ConvInputs<'_>, channels: &Range<usize>, t: usize, out: &mut [f32]) {
    out.fill(0.0);
    for tap in 0..inputs.args.kernel {
        let (weights, input) = inputs.tap(t, tap, channels);
        for ((out, w), x) in out.iter_mut().zip(weights).zip(input) {
            *out += w * x;
        }
    }
    if inputs.args.silu {
        out.iter_mut().for_each(|out| *out = silu(*out));
    }
}
