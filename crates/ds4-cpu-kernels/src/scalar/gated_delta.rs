//! The gated delta rule on some columns of one head's state.

use crate::GatedDeltaArgs;
use crate::disjoint::Columns;
use crate::ops::{DeltaBlock, StateBlock};

/// Lets all tokens stream over a block of columns.
///
/// `decay` is exp(g), [L, value_heads]; `state` the columns of that head's state, `out` those of the output.
pub(crate) fn columns(
    args: &GatedDeltaArgs<'_>,
    decay: &[f32],
    block: DeltaBlock,
    state: &mut StateBlock<'_>,
    out: &mut Columns<'_, f32>,
) {
    let DeltaBlock { head, first, .. } = block;
    let GatedDeltaArgs { key_heads, value_heads, dk, dv, .. } = *args;
    let key_head = head / (value_heads / key_heads);
    for t in 0..args.g.len() / value_heads {
        let key = (t * key_heads + key_head) * dk;
        let (q, k) = (&args.q[key..key + dk], &args.k[key..key + dk]);
        let value = (t * value_heads + head) * dv + first;
        let (decay, beta) = (decay[t * value_heads + head], args.beta[t * value_heads + head]);
        let out = out.row(t);
        // In the first pass `out` collects what the decayed state remembers for this key.
        out.fill(0.0);
        for (i, k) in k.iter().enumerate() {
            block.prefetch(t, i);
            for (out, s) in out.iter_mut().zip(state.row(i)) {
                *s *= decay;
                *out += *s * k;
            }
        }
        let delta: Vec<f32> =
            out.iter().zip(&args.v[value..]).map(|(remembered, v)| (v - remembered) * beta).collect();
        out.fill(0.0);
        for (i, (k, q)) in k.iter().zip(q).enumerate() {
            for ((out, s), delta) in out.iter_mut().zip(state.row(i)).zip(&delta) {
                *s += k * delta;
                *out += *s * q;
            }
        }
    }
    state.put_back();
}
