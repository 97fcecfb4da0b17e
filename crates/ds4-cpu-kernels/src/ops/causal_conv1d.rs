//! Depthwise causal convolution over tokens, continued from a history.

use std::ops::Range;

use crate::Cpu;
use crate::disjoint::Parts;

/// The inputs of [`causal_conv1d`].
#[derive(Clone, Copy, Debug)]
pub struct CausalConv1dArgs<'a> {
    /// [(kernel - 1) * dilation, channels]: the inputs before `x`.
    pub history: &'a [f32],
    /// [L, channels].
    pub x: &'a [f32],
    /// [kernel, channels]: tap by tap, so that neighbouring channels are read together.
    pub weight: &'a [f32],
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
    /// The weights of tap `tap` for these channels, and what it reads for token `t`, from history and `x` together.
    #[inline]
    pub(crate) fn tap(&self, t: usize, tap: usize, channels: &Range<usize>) -> (&'a [f32], &'a [f32]) {
        let weights = &self.weight[tap * self.channels..][channels.clone()];
        let row = (t + tap * self.dilation) * self.channels;
        let (source, row) = match row.checked_sub(self.history.len()) {
            None => (self.history, row),
            Some(row) => (self.x, row),
        };
        (weights, &source[row..][channels.clone()])
    }
}

/// `out[t, c]` = sum over taps `j` of `weight[j, c]` * `u[t + j * dilation, c]`, with `u` = history, then `x`.
///
/// `out` is [L, channels]. There is no bias.
pub fn causal_conv1d(cpu: &Cpu, args: &CausalConv1dArgs<'_>, out: &mut [f32]) {
    let CausalConv1dArgs { history, x, weight, channels, kernel, dilation, silu } = *args;
    debug_assert_eq!(history.len(), (kernel - 1) * dilation * channels);
    debug_assert_eq!(x.len(), out.len());
    debug_assert_eq!(weight.len(), channels * kernel);
    if out.is_empty() {
        return;
    }
    let tokens = out.len() / channels;
    let cost = (2 * kernel + 16 * usize::from(silu)) * tokens;
    let out = Parts::new(out);
    cpu.for_each_range(channels, cost, |range| {
        // SAFETY: each task has its own channels.
        let mut out = unsafe { out.columns(range.start, tokens, channels, range.len()) };
        for t in 0..tokens {
            dispatch!(cpu, causal_conv1d::token(args, &range, t, out.row(t)));
        }
    });
}
