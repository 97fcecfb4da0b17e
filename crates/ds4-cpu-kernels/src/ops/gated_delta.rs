//! The gated delta rule: a linear attention whose state forgets and corrects itself.
//!
//! The recurrent form, token by token, also for long inputs: its result does not depend on how tokens are cut into
//! calls. It is kept fast by letting all tokens stream over a block of the state that fits into the L1 cache.

use crate::Cpu;
use crate::disjoint::Parts;
use crate::scratch::Scratch;

/// Columns of a head's state that a task holds: 128 rows of 32 floats are 16 KiB.
const COLUMN_BLOCK: usize = 32;

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

/// For each token: S *= exp(g); delta = (v - S^T k) * beta; S += k delta^T; out = S^T q.
///
/// `state` is S, [value_heads, dk, dv], updated; `out` is [L, value_heads, dv].
pub fn gated_delta(cpu: &Cpu, args: &GatedDeltaArgs<'_>, state: &mut [f32], out: &mut [f32]) {
    let GatedDeltaArgs { q, k, v, g, beta, key_heads, value_heads, dk, dv } = *args;
    debug_assert!(value_heads.is_multiple_of(key_heads));
    debug_assert_eq!(state.len(), value_heads * dk * dv);
    debug_assert_eq!(out.len(), v.len());
    debug_assert_eq!(q.len(), k.len());
    debug_assert_eq!(g.len() * dv, v.len());
    debug_assert_eq!(beta.len(), g.len());
    let tokens = g.len() / value_heads;
    debug_assert_eq!(q.len(), tokens * key_heads * dk);
    let blocks = dv.div_ceil(COLUMN_BLOCK);
    // exp once a head and token, not once a column block.
    let mut decay = Scratch::copy_of(g);
    dispatch!(cpu, unary::in_place(crate::UnaryOp::Exp, &mut decay));
    let (state, out) = (Parts::new(state), Parts::new(out));
    cpu.for_each_range(value_heads * blocks, 3 * tokens * dk * COLUMN_BLOCK, |tasks| {
        for task in tasks {
            let (head, first) = (task / blocks, task % blocks * COLUMN_BLOCK);
            let width = COLUMN_BLOCK.min(dv - first);
            // SAFETY: each task has its own head and columns, of the state and of the output.
            let (mut state, mut out) = unsafe {
                (
                    state.columns(head * dk * dv + first, dk, dv, width),
                    out.columns(head * dv + first, tokens, value_heads * dv, width),
                )
            };
            dispatch!(cpu, gated_delta::columns(args, &decay, head, first, &mut state, &mut out));
        }
    });
}
