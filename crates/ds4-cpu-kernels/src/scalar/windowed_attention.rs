//! Attention over a window and entries, a query at a time, with all its scores in memory.

use crate::WindowedAttentionArgs;
use crate::disjoint::Columns;
use crate::ops::WindowedPart;
use crate::scalar::convert::widen;
use crate::scalar::linear::dot;

/// `out` row `i` = the heads of the part for its query `i`.
pub(crate) fn part(args: &WindowedAttentionArgs<'_>, part: &WindowedPart, out: &mut Columns<'_, f32>) {
    let WindowedAttentionArgs { d, heads, .. } = *args;
    for (i, query) in part.queries.clone().enumerate() {
        let keys = keys_of(args, query);
        let out = out.row(i);
        out.fill(0.0);
        for (head, out) in part.heads.clone().zip(out.chunks_exact_mut(d)) {
            let q = &args.q[(query * heads + head) * d..][..d];
            let mut weights: Vec<f32> = keys.chunks_exact(d).map(|key| args.scale * dot(q, key)).collect();
            let sink = args.sinks[head];
            let max = weights.iter().copied().fold(sink, f32::max);
            weights.iter_mut().for_each(|weight| *weight = (*weight - max).exp());
            let factor = 1.0 / ((sink - max).exp() + weights.iter().sum::<f32>());
            for (key, weight) in keys.chunks_exact(d).zip(weights) {
                out.iter_mut().zip(key).for_each(|(out, key)| *out += weight * factor * key);
            }
        }
    }
}

/// What the query sees, as float32 rows of `d`.
fn keys_of(args: &WindowedAttentionArgs<'_>, query: usize) -> Vec<f32> {
    let mut rows: Vec<_> = args.seen(query).map(|position| args.token(position)).collect();
    if let Some(entries) = &args.entries {
        match entries.chosen(query) {
            Some(ids) => rows.extend(ids.iter().map(|&id| args.entry(entries, id as usize))),
            None => {
                let visible = entries.visible(args.first_position + query);
                rows.extend((0..visible).map(|id| args.entry(entries, id)));
            }
        }
    }
    let mut out = vec![0.0; rows.len() * args.d];
    rows.into_iter().zip(out.chunks_exact_mut(args.d)).for_each(|(row, out)| widen(row, out));
    out
}
