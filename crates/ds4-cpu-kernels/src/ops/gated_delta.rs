//! The gated delta rule: a linear attention whose state forgets and corrects itself.
//!
//! The recurrent form, token by token, also for long inputs: its result does not depend on how tokens are cut into
//! calls, or on the other sequences of a call.

use std::ops::Range;

use super::delta_columns::{DeltaSequence, StateSizes, for_each_column_block};
use crate::scratch::Scratch;
use crate::{Cpu, UnaryOp};

/// The inputs of [`gated_delta`].
#[derive(Clone, Copy, Debug)]
pub struct GatedDeltaArgs<'a> {
    /// [L, key_heads, dk].
    pub q: &'a [f32],
    /// [L, key_heads, dk].
    pub k: &'a [f32],
    /// [L, value_heads, dv].
    pub v: &'a [f32],
    /// [L, value_heads]: logarithm of the decay, at most 0.
    pub g: &'a [f32],
    /// [L, value_heads]: how much of the error is corrected.
    pub beta: &'a [f32],
    /// Heads of `q` and `k`.
    pub key_heads: usize,
    /// Heads of `v`, a multiple of `key_heads`; value head `h` uses key head `h / (value_heads / key_heads)`.
    pub value_heads: usize,
    /// Size of a key head.
    pub dk: usize,
    /// Size of a value head.
    pub dv: usize,
}

impl GatedDeltaArgs<'_> {
    /// Those of some tokens.
    fn of(&self, tokens: Range<usize>) -> Self {
        let Self { key_heads, value_heads, dk, dv, .. } = *self;
        let part = |width: usize| tokens.start * width..tokens.end * width;
        Self {
            q: &self.q[part(key_heads * dk)],
            k: &self.k[part(key_heads * dk)],
            v: &self.v[part(value_heads * dv)],
            g: &self.g[part(value_heads)],
            beta: &self.beta[part(value_heads)],
            ..*self
        }
    }
}

/// For each token of each sequence: S *= exp(g); delta = (v - S^T k) * beta; S += k delta^T; out = S^T q.
///
/// S is the sequence's state, [value_heads, dk, dv]; `out` is [L, value_heads, dv], the tokens of the sequences one after the
/// other.
pub fn gated_delta(
    cpu: &Cpu,
    args: &GatedDeltaArgs<'_>,
    sequences: &mut [DeltaSequence<'_>],
    out: &mut [f32],
) {
    let GatedDeltaArgs { q, k, v, g, beta, key_heads, value_heads, dk, dv } = *args;
    debug_assert!(value_heads.is_multiple_of(key_heads));
    debug_assert_eq!(g.len() * dv, v.len());
    debug_assert_eq!(beta.len(), g.len());
    debug_assert_eq!(q.len() * value_heads, g.len() * key_heads * dk);
    debug_assert_eq!(k.len(), q.len());
    // exp once a head and token, not once a column block.
    let mut decay = Scratch::copy_of(g);
    crate::unary_in_place(cpu, UnaryOp::Exp, &mut decay);
    let sizes = StateSizes { heads: value_heads, dk, dv };
    for_each_column_block(cpu, sizes, sequences, out, |tokens, block, state, out| {
        let decay = &decay[tokens.start * value_heads..tokens.end * value_heads];
        dispatch!(cpu, gated_delta::columns(&args.of(tokens), decay, block, state, out));
    });
}
