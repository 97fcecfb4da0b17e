//! Causal attention, a row at a time, with all its scores in memory.

use crate::AttentionArgs;
use crate::disjoint::Columns;
use crate::ops::AttentionPart;
use crate::scalar::convert::widen;
use crate::scalar::linear::dot;
use crate::scalar::softmax;

/// `out` row `i` = the heads of the part for its query `i`.
pub(crate) fn part(args: &AttentionArgs<'_>, part: &AttentionPart, out: &mut Columns<'_, f32>) {
    let AttentionArgs { d, dv, heads, .. } = *args;
    let (mut key, mut value) = (vec![0.0; d], vec![0.0; dv]);
    for (i, query) in part.queries.clone().enumerate() {
        let positions: Vec<usize> = args.visible(query..query + 1).flatten().collect();
        let mut scores = vec![0.0; part.heads.len() * positions.len()];
        for (s, &position) in positions.iter().enumerate() {
            widen(args.key(position, part.kv_head), &mut key);
            for (h, head) in part.heads.clone().enumerate() {
                let q = &args.q[(query * heads + head) * d..(query * heads + head + 1) * d];
                scores[h * positions.len() + s] = args.scale * dot(q, &key);
            }
        }
        let mut weights = vec![0.0; scores.len()];
        for (scores, weights) in
            scores.chunks_exact(positions.len()).zip(weights.chunks_exact_mut(positions.len()))
        {
            softmax::row(scores, weights);
        }
        let out = out.row(i);
        out.fill(0.0);
        for (s, &position) in positions.iter().enumerate() {
            widen(args.value(position, part.kv_head), &mut value);
            for (h, out) in out.chunks_exact_mut(dv).enumerate() {
                let weight = weights[h * positions.len() + s];
                out.iter_mut().zip(&value).for_each(|(out, v)| *out += weight * v);
            }
        }
    }
}
