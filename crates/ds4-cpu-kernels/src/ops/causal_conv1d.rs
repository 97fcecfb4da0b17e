//! Depthwise causal convolution over tokens, continued from a history.

use ds4_dtype::Floats;

use crate::Cpu;

/// The inputs of [`causal_conv1d`].
#[derive(Clone, Copy, Debug)]
pub struct CausalConv1dArgs<'a> {
    /// [(kernel - 1) * dilation, channels]: the inputs before `x`.
    pub history: &'a [f32],
    /// [L, channels].
    pub x: &'a [f32],
    /// [channels, kernel].
    pub weight: Floats<'a>,
    /// Number of channels.
    pub channels: usize,
    /// Taps of a channel.
    pub kernel: usize,
    /// Tokens between taps.
    pub dilation: usize,
    /// Whether silu follows.
    pub silu: bool,
}

impl<'a> CausalConv1dArgs<'a> {
    /// The input row that tap `tap` of token `t` reads, over history and `x` together.
    #[inline]
    pub(crate) fn input(&self, t: usize, tap: usize) -> &'a [f32] {
        let row = (t + tap * self.dilation) * self.channels;
        match row.checked_sub(self.history.len()) {
            None => &self.history[row..row + self.channels],
            Some(row) => &self.x[row..row + self.channels],
        }
    }
}

/// `out[t, c]` = sum over taps `j` of `weight[c, j]` * `u[t + j * dilation, c]`, with `u` = history, then `x`.
///
/// `out` is [L, channels]. There is no bias.
pub fn causal_conv1d(cpu: &Cpu, args: &CausalConv1dArgs<'_>, out: &mut [f32]) {
    let CausalConv1dArgs { history, x, weight, channels, kernel, dilation, .. } = *args;
    debug_assert_eq!(history.len(), (kernel - 1) * dilation * channels);
    debug_assert_eq!(x.len(), out.len());
    debug_assert_eq!(weight.len(), channels * kernel);
    // Tap by tap, so that neighbouring channels are read together.
    let mut taps = vec![0.0; kernel * channels];
    for c in 0..channels {
        for j in 0..kernel {
            taps[j * channels + c] = weight.get(c * kernel + j);
        }
    }
    cpu.for_each_rows(out, channels, (kernel + 8 * usize::from(args.silu)) * channels, |first, out| {
        for (i, out) in out.chunks_exact_mut(channels).enumerate() {
            dispatch!(cpu, causal_conv1d::token(args, &taps, first + i, out));
        }
    });
}
