//! The delta rule with a decay for every channel, on some columns of one head's state.

use crate::KimiDeltaArgs;
use crate::disjoint::Columns;
use crate::ops::{DeltaBlock, StateBlock};

/// Lets all tokens stream over a block of columns.
///
/// `decay` is exp(g), [L, heads, dk]; `state` the columns of that head's state, `out` those of the output.
pub(crate) fn columns(
    args: &KimiDeltaArgs<'_>,
    decay: &[f32],
    block: DeltaBlock,
    state: &mut StateBlock<'_>,
    out: &mut Columns<'_, f32>,
) {
    let DeltaBlock { head, first, .. } = block;
    let KimiDeltaArgs { heads, dk, dv, .. } = *args;
    for t in 0..args.beta.len() / heads {
        let at = t * heads + head;
        let key = at * dk..(at + 1) * dk;
        let (q, k, decay) = (&args.q[key.clone()], &args.k[key.clone()], &decay[key]);
        let out = out.row(t);
        // In the first pass `out` collects what the decayed state remembers for this key.
        out.fill(0.0);
        for (i, (k, decay)) in k.iter().zip(decay).enumerate() {
            block.prefetch(t, i);
            for (out, s) in out.iter_mut().zip(state.row(i)) {
                *s *= decay;
                *out += *s * k;
            }
        }
        let values = &args.v[at * dv + first..];
        let delta: Vec<f32> =
            out.iter().zip(values).map(|(remembered, v)| (v - remembered) * args.beta[at]).collect();
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
