//! Depthwise causal convolution over the tokens of sequences, each continued from a history.

use std::ops::Range;

use super::sequences::all_tokens;
use crate::Cpu;
use crate::disjoint::Parts;

/// What the sequences of a [`causal_conv1d`] share.
#[derive(Clone, Copy, Debug)]
pub struct CausalConv1dArgs<'a> {
    /// [L, channels]: the tokens of the sequences one after the other.
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

impl CausalConv1dArgs<'_> {
    /// Tokens that the first one looks back at.
    fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation
    }
}

/// The tokens of one sequence in a call.
pub struct ConvSequence<'a> {
    tokens: Range<usize>,
    history: &'a [f32],
    next: Parts<'a, f32>,
}

impl<'a> ConvSequence<'a> {
    /// `tokens` of the call come after the inputs `history`, [(kernel - 1) * dilation, channels]; `next` becomes the history of
    /// the tokens after them.
    pub fn new(tokens: Range<usize>, history: &'a [f32], next: &'a mut [f32]) -> Self {
        debug_assert_eq!(history.len(), next.len());
        Self { tokens, history, next: Parts::new(next) }
    }
}

/// What one sequence's tokens look at.
pub(crate) struct ConvInputs<'a> {
    pub(crate) args: &'a CausalConv1dArgs<'a>,
    history: &'a [f32],
    /// The inputs of the tokens.
    x: &'a [f32],
}

impl<'a> ConvInputs<'a> {
    /// The weights of tap `tap` for these channels, and what it reads for token `t`.
    #[inline]
    pub(crate) fn tap(&self, t: usize, tap: usize, channels: &Range<usize>) -> (&'a [f32], &'a [f32]) {
        let weights = &self.args.weight[tap * self.args.channels..][channels.clone()];
        (weights, self.row(t + tap * self.args.dilation, channels))
    }

    /// Row `i` of the history and the inputs after it.
    #[inline]
    fn row(&self, i: usize, channels: &Range<usize>) -> &'a [f32] {
        let at = i * self.args.channels;
        let (source, at) = match at.checked_sub(self.history.len()) {
            None => (self.history, at),
            Some(at) => (self.x, at),
        };
        &source[at..][channels.clone()]
    }
}

/// For each token of each sequence: `out[t, c]` = sum over taps `j` of `weight[j, c]` * `u[t + j * dilation, c]`, with `u` = the
/// sequence's history, then its inputs.
///
/// `out` is [L, channels]. There is no bias.
pub fn causal_conv1d(
    cpu: &Cpu,
    args: &CausalConv1dArgs<'_>,
    sequences: &mut [ConvSequence<'_>],
    out: &mut [f32],
) {
    let CausalConv1dArgs { x, weight, channels, kernel, silu, .. } = *args;
    debug_assert_eq!(weight.len(), channels * kernel);
    for sequence in &*sequences {
        assert_eq!(sequence.history.len(), args.reach() * channels, "the size of a history");
    }
    let tokens = all_tokens(sequences.iter().map(|sequence| &sequence.tokens));
    assert_eq!((x.len(), out.len()), (tokens * channels, tokens * channels), "the rows of all sequences");
    let cost = (2 * kernel + 16 * usize::from(silu)) * tokens;
    let (sequences, out) = (&*sequences, Parts::new(out));
    cpu.for_each_range(channels, cost, |range| {
        for ConvSequence { tokens, history, next } in sequences {
            let x = &x[tokens.start * channels..tokens.end * channels];
            let inputs = ConvInputs { args, history, x };
            // SAFETY: each task has its own channels, of the output and of what comes next.
            let (mut out, mut next) = unsafe {
                let first = tokens.start * channels + range.start;
                (
                    out.columns(first, tokens.len(), channels, range.len()),
                    next.columns(range.start, args.reach(), channels, range.len()),
                )
            };
            for t in 0..tokens.len() {
                dispatch!(cpu, causal_conv1d::token(&inputs, &range, t, out.row(t)));
            }
            for i in 0..args.reach() {
                next.row(i).copy_from_slice(inputs.row(tokens.len() + i, &range));
            }
        }
    });
}
