//! Depthwise causal convolution over tokens, continued from a history.

use std::ops::Range;

use ds4_dtype::Floats;

use crate::Cpu;
use crate::disjoint::Parts;
use crate::scratch::Scratch;

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

/// A run of channels and their weights.
pub(crate) struct Channels {
    pub(crate) range: Range<usize>,
    /// [kernel, channels of the range]: tap by tap, so that neighbouring channels are read together.
    pub(crate) taps: Scratch,
}

impl<'a> CausalConv1dArgs<'a> {
    /// What tap `tap` of token `t` reads for these channels, from history and `x` together.
    #[inline]
    pub(crate) fn input(&self, t: usize, tap: usize, channels: &Channels) -> &'a [f32] {
        let row = (t + tap * self.dilation) * self.channels;
        let (source, row) = match row.checked_sub(self.history.len()) {
            None => (self.history, row),
            Some(row) => (self.x, row),
        };
        &source[row + channels.range.start..row + channels.range.end]
    }
}

/// `out[t, c]` = sum over taps `j` of `weight[c, j]` * `u[t + j * dilation, c]`, with `u` = history, then `x`.
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
    let cost = (2 * kernel + 16 * usize::from(silu)) * tokens + 4 * kernel;
    let out = Parts::new(out);
    cpu.for_each_range(channels, cost, |range| {
        let mut by_channel = Scratch::new(range.len() * kernel);
        dispatch!(
            cpu,
            convert::widen(weight.slice(range.start * kernel..range.end * kernel), &mut by_channel)
        );
        let mut taps = Scratch::new(by_channel.len());
        dispatch!(cpu, causal_conv1d::by_tap(&by_channel, kernel, &mut taps));
        // SAFETY: each task has its own channels.
        let mut out = unsafe { out.columns(range.start, tokens, channels, range.len()) };
        let channels = Channels { range, taps };
        for t in 0..tokens {
            dispatch!(cpu, causal_conv1d::token(args, &channels, t, out.row(t)));
        }
    });
}
