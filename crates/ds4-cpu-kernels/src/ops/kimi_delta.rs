//! The delta rule with a decay for every channel of the keys, as Kimi delta attention has it.
//!
//! Like [`gated_delta`](crate::gated_delta) it is recurrent for any number of tokens, so that its result does not depend on
//! how they are cut into calls.

use std::ops::Range;

use super::delta_columns::{DeltaSequence, StateSizes, for_each_column_block};
use crate::scratch::Scratch;
use crate::{Cpu, UnaryOp};

/// The inputs of [`kimi_delta`].
#[derive(Clone, Copy, Debug)]
pub struct KimiDeltaArgs<'a> {
    /// [L, heads, dk].
    pub q: &'a [f32],
    /// [L, heads, dk].
    pub k: &'a [f32],
    /// [L, heads, dv].
    pub v: &'a [f32],
    /// [L, heads, dk]: logarithm of the decay of each channel, at most 0.
    pub g: &'a [f32],
    /// [L, heads]: how much of the error is corrected.
    pub beta: &'a [f32],
    /// Heads of all of them.
    pub heads: usize,
    /// Size of a key head.
    pub dk: usize,
    /// Size of a value head.
    pub dv: usize,
}

impl KimiDeltaArgs<'_> {
    /// Those of some tokens.
    fn of(&self, tokens: Range<usize>) -> Self {
        let Self { heads, dk, dv, .. } = *self;
        let part = |width: usize| tokens.start * width..tokens.end * width;
        Self {
            q: &self.q[part(heads * dk)],
            k: &self.k[part(heads * dk)],
            v: &self.v[part(heads * dv)],
            g: &self.g[part(heads * dk)],
            beta: &self.beta[part(heads)],
            ..*self
        }
    }
}

/// For each token of each sequence: S *= exp(g), row by row; delta = (v - S^T k) * beta; S += k delta^T; out = S^T q.
///
/// S is the sequence's state, [heads, dk, dv]; `out` is [L, heads, dv], the tokens of the sequences one after the other.
/// Source: Kimi Team, "Kimi Linear".
pub fn kimi_delta(cpu: &Cpu, args: &KimiDeltaArgs<'_>, sequences: &mut [DeltaSequence<'_>], out: &mut [f32]) {
    let KimiDeltaArgs { q, k, v, g, beta, heads, dk, dv } = *args;
    debug_assert_eq!(q.len(), k.len());
    debug_assert_eq!(g.len(), k.len());
    debug_assert_eq!(beta.len() * dv, v.len());
    debug_assert_eq!(beta.len() * dk, k.len());
    // exp once, not once a column block.
    let mut decay = Scratch::copy_of(g);
    crate::unary_in_place(cpu, UnaryOp::Exp, &mut decay);
    let width = heads * dk;
    for_each_column_block(cpu, StateSizes { heads, dk, dv }, sequences, out, |tokens, block, state, out| {
        let decay = &decay[tokens.start * width..tokens.end * width];
        dispatch!(cpu, kimi_delta::columns(&args.of(tokens), decay, block, state, out));
    });
}
