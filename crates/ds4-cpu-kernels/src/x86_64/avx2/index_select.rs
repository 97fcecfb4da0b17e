//! Scores of key blocks for the indexer.

use std::ops::Range;

use super::convert::widen;
use super::lanes::LANES;
use super::panel::{COLUMNS, Sums, accumulate, finish};
use crate::IndexSelectArgs;
use crate::disjoint::Columns;
use crate::rows::padded_width;
use crate::scratch::Scratch;

/// `out` row `i` = the scores of the blocks `blocks` for query `queries[i]`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn scores(
    args: &IndexSelectArgs<'_>,
    queries: Range<usize>,
    blocks: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    let IndexSelectArgs { d, heads, scale, .. } = *args;
    let width = padded_width(d);
    let q = crate::rows::padded(&args.q[queries.start * heads * d..queries.end * heads * d], d);
    let row = |i: usize| q[i * width..][..width].as_chunks().0;
    let mut keys = Scratch::filled(COLUMNS * width, 0.0);
    let mut sums = Scratch::new(queries.len() * heads * COLUMNS * LANES);
    let sums: &mut [Sums] = sums.as_chunks_mut().0.as_chunks_mut().0;
    for first in blocks.clone().step_by(COLUMNS) {
        let count = COLUMNS.min(blocks.end - first);
        for (j, key) in keys.chunks_exact_mut(width).take(count).enumerate() {
            widen(args.key(first + j), &mut key[..d]);
        }
        sums.fill([[0.0; LANES]; COLUMNS]);
        accumulate(row, keys[..count * width].as_chunks().0, width / LANES, sums);
        for (i, sums) in sums.chunks_exact(heads).enumerate() {
            let mut scores = [0.0f32; COLUMNS];
            for (head, sums) in sums.iter().enumerate() {
                let weight = args.weight(queries.start + i, head);
                let mut products = [0.0; COLUMNS];
                finish(sums, &mut products);
                for (score, product) in scores.iter_mut().zip(products) {
                    *score += weight * if product > 0.0 { product } else { 0.0 };
                }
            }
            let out = &mut out.row(i)[first - blocks.start..][..count];
            out.iter_mut().zip(scores).for_each(|(out, score)| *out = scale * score);
        }
    }
}
