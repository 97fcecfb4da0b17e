//! Causal attention, dense or over selected blocks.
//!
//! Tiles lie at fixed positions and a row takes them in ascending order, so a row's result does not depend on the queries
//! it shares the call with.

use super::attention_rows::{AttentionRows, TILE};
use super::convert::widen;
use crate::AttentionArgs;
use crate::disjoint::Columns;
use crate::ops::AttentionPart;
use crate::rows::padded_width;
use crate::scratch::Scratch;

/// `out` row `i` = the heads of the part for its query `i`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn part(args: &AttentionArgs<'_>, part: &AttentionPart, out: &mut Columns<'_, f32>) {
    let (d, dv) = (padded_width(args.d), padded_width(args.dv));
    let sizes = [args.heads, args.d, args.dv];
    let nothing = |_| (f32::NEG_INFINITY, 0.0);
    let mut rows = AttentionRows::new(args.q, sizes, args.scale, &part.queries, &part.heads, nothing);
    // Zeros, since the ends of padded rows are never written.
    let (mut keys, mut values) = (Scratch::filled(TILE * d, 0.0), Scratch::filled(TILE * dv, 0.0));
    for range in args.visible(part.queries.clone()) {
        for first in range.clone().step_by(TILE) {
            let len = TILE.min(range.end - first);
            for i in 0..len {
                widen(args.key(first + i, part.kv_head), &mut keys[i * d..][..args.d]);
                widen(args.value(first + i, part.kv_head), &mut values[i * dv..][..args.dv]);
            }
            let position = args.first_position + part.queries.start;
            rows.take(&keys, &values, len, |i| 0..len.min((position + i + 1).saturating_sub(first)));
        }
    }
    rows.finish(args.dv, out);
}
