//! Depthwise causal convolution of one token.

use crate::CausalConv1dArgs;
use crate::scalar::unary::silu;

/// `out` = token `t` of the convolution; `taps` are the weights as [kernel, channels].
pub(crate) fn token(args: &CausalConv1dArgs<'_>, taps: &[f32], t: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (j, weights) in taps.chunks_exact(args.channels).enumerate() {
        for ((out, w), x) in out.iter_mut().zip(weights).zip(args.input(t, j)) {
            *out += w * x;
        }
    }
    if args.silu {
        out.iter_mut().for_each(|out| *out = silu(*out));
    }
}
