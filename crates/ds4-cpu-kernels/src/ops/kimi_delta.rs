//! The delta rule with a decay for every channel of the keys, as Kimi delta attention has it.
//!
//! Like [`gated_delta`](crate::gated_delta) it is recurrent for any number of tokens, so that its result does not depend on
//! how they are cut into calls.

use super::delta_columns::{DeltaCall, for_each_column_block};
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
    /// The state before the first token, [heads, dk, dv]; `None` if it is where the new one will be.
    pub before: Option<&'a [f32]>,
}

/// For each token: S *= exp(g), row by row; delta = (v - S^T k) * beta; S += k delta^T; out = S^T q.
///
/// `state` is S, [heads, dk, dv], updated; `out` is [L, heads, dv]. Source: Kimi Team, "Kimi Linear".
pub fn kimi_delta(cpu: &Cpu, args: &KimiDeltaArgs<'_>, state: &mut [f32], out: &mut [f32]) {
    let KimiDeltaArgs { q, k, v, g, beta, heads, dk, dv, before } = *args;
    debug_assert_eq!(q.len(), k.len());
    debug_assert_eq!(g.len(), k.len());
    debug_assert_eq!(beta.len() * dv, v.len());
    debug_assert_eq!(beta.len() * dk, k.len());
    // exp once, not once a column block.
    let mut decay = Scratch::copy_of(g);
    crate::unary_in_place(cpu, UnaryOp::Exp, &mut decay);
    let call = DeltaCall { tokens: beta.len() / heads, heads, dk, dv, before };
    for_each_column_block(cpu, &call, state, out, |block, state, out| {
        dispatch!(cpu, kimi_delta::columns(args, &decay, block, state, out));
    });
}
