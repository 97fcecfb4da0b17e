//! Causal attention, dense or over selected blocks.
//!
//! A tile takes the next keys that its queries see, in ascending order and from the first one on, so a row's result does
//! not depend on the queries it shares the call with. Selected blocks are small: tiles that ended with them would spend
//! their time on bringing sums together.

use super::attention_rows::{AttentionRows, TILE};
use super::convert::widen;
use crate::AttentionArgs;
use crate::disjoint::Columns;
use crate::ops::AttentionPart;
use crate::prefetch;
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
    let mut positions = args.visible(part.queries.clone()).flatten().peekable();
    // Selected blocks lie anywhere, so that memory has to be told of the next tile while this one is worked on.
    let mut next = positions.clone().skip(TILE);
    while let Some(&first) = positions.peek() {
        let mut len = 0;
        let tile = keys.chunks_exact_mut(d).zip(values.chunks_exact_mut(dv));
        for ((key, value), position) in tile.zip(&mut positions) {
            if let Some(next) = next.next() {
                prefetch::floats(args.key(next, part.kv_head));
                prefetch::floats(args.value(next, part.kv_head));
            }
            widen(args.key(position, part.kv_head), &mut key[..args.d]);
            widen(args.value(position, part.kv_head), &mut value[..args.dv]);
            len += 1;
        }
        // Without a selection a tile is a run of positions, and a query sees those up to its own.
        let own = args.first_position + part.queries.start + 1;
        let seen =
            |i: usize| if args.selection.is_some() { len } else { len.min((own + i).saturating_sub(first)) };
        rows.take(&keys, &values, len, |i| 0..seen(i));
    }
    rows.finish(args.dv, out);
}
