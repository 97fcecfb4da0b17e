//! The gated delta rule: a linear attention whose state forgets and corrects itself.
//!
//! The recurrent form, token by token, also for long inputs: its result does not depend on how tokens are cut into
//! calls.

use super::delta_columns::{DeltaCall, for_each_column_block};
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
    /// The state before the first token, [value_heads, dk, dv]; `None` if it is where the new one will be.
    pub before: Option<&'a [f32]>,
}

/// For each token: S *= exp(g); delta = (v - S^T k) * beta; S += k delta^T; out = S^T q.
///
/// `state` is S, [value_heads, dk, dv], updated; `out` is [L, value_heads, dv].
pub fn gated_delta(cpu: &Cpu, args: &GatedDeltaArgs<'_>, state: &mut [f32], out: &mut [f32]) {
    let GatedDeltaArgs { q, k, v, g, beta, key_heads, value_heads, dk, dv, before } = *args;
    debug_assert!(value_heads.is_multiple_of(key_heads));
    debug_assert_eq!(g.len() * dv, v.len());
    debug_assert_eq!(beta.len(), g.len());
    let tokens = g.len() / value_heads;
    debug_assert_eq!(q.len(), tokens * key_heads * dk);
    debug_assert_eq!(k.len(), q.len());
    // exp once a head and token, not once a column block.
    let mut decay = Scratch::copy_of(g);
    crate::unary_in_place(cpu, UnaryOp::Exp, &mut decay);
    let call = DeltaCall { tokens, heads: value_heads, dk, dv, before };
    for_each_column_block(cpu, &call, state, out, |block, state, out| {
        dispatch!(cpu, gated_delta::columns(args, &decay, block, state, out));
    });
}
