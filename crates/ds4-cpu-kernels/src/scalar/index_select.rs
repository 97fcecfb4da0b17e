//! Scores of key blocks for the indexer.

use std::ops::Range;

use crate::IndexSelectArgs;
use crate::disjoint::Columns;
use crate::scalar::convert::widen;
use crate::scalar::linear::dot;

/// `out` row `i` = the scores of the blocks `blocks` for query `queries[i]`.
pub(crate) fn scores(
    args: &IndexSelectArgs<'_>,
    queries: Range<usize>,
    blocks: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    let IndexSelectArgs { d, heads, scale, .. } = *args;
    let mut key = vec![0.0; d];
    for (at, block) in blocks.enumerate() {
        widen(args.key(block), &mut key);
        for (i, query) in queries.clone().enumerate() {
            let q = &args.q[query * heads * d..(query + 1) * heads * d];
            let relu = |s: f32| if s > 0.0 { s } else { 0.0 };
            let terms = q.chunks_exact(d).enumerate();
            let sum: f32 = terms.map(|(head, q)| args.weight(query, head) * relu(dot(q, &key))).sum();
            out.row(i)[at] = scale * sum;
        }
    }
}
