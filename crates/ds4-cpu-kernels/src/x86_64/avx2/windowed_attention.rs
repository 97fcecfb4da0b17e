//! Attention over a window and entries.
//!
//! Tiles of the window lie at fixed positions, tiles of entries at fixed places in a query's list, and a row takes them in
//! ascending order: its result does not depend on the queries that it shares the call with.

use std::ops::Range;

use ds4_dtype::Floats;

use super::attention_rows::{AttentionRows, TILE};
use super::convert::widen;
use crate::WindowedAttentionArgs;
use crate::disjoint::Columns;
use crate::ops::WindowedPart;
use crate::rows::padded_width;
use crate::scratch::Scratch;

/// `out` row `i` = the heads of the part for its query `i`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn part(args: &WindowedAttentionArgs<'_>, part: &WindowedPart, out: &mut Columns<'_, f32>) {
    let sizes = [args.heads, args.d, args.d];
    let sink = |head: usize| (args.sinks[head], 1.0);
    let mut rows = AttentionRows::new(args.q, sizes, args.scale, &part.queries, &part.heads, sink);
    // Zeros, since the ends of padded rows are never written.
    let mut tile = Scratch::filled(TILE * padded_width(args.d), 0.0);
    let first = args.seen(part.queries.start).start;
    let end = args.first_position + part.queries.end;
    let mut start = first / TILE * TILE;
    while start < end {
        let positions = start.max(first)..end.min(start + TILE);
        let base = positions.start;
        let len = load(positions.clone().map(|position| args.token(position)), args.d, &mut tile);
        rows.take(&tile, &tile, len, |i| {
            let seen = args.seen(part.queries.start + i);
            within(&seen, &positions, base)
        });
        start += TILE;
    }
    if let Some(entries) = &args.entries {
        let last = args.first_position + part.queries.end - 1;
        let chosen = entries.chosen(part.queries.start);
        let count = chosen.map_or(entries.visible(last), <[u32]>::len);
        for start in (0..count).step_by(TILE) {
            let places = start..count.min(start + TILE);
            let entry = |place: usize| args.entry(entries, chosen.map_or(place, |ids| ids[place] as usize));
            let len = load(places.clone().map(entry), args.d, &mut tile);
            rows.take(&tile, &tile, len, |i| {
                let visible = entries.visible(args.first_position + part.queries.start + i);
                within(&(0..chosen.map_or(visible, <[u32]>::len)), &places, start)
            });
        }
    }
    rows.finish(args.d, out);
}

/// The part of `seen` that lies in `tile`, counted from `base`.
fn within(seen: &Range<usize>, tile: &Range<usize>, base: usize) -> Range<usize> {
    let start = seen.start.max(tile.start);
    start - base..seen.end.min(tile.end).max(start) - base
}

/// Writes `keys` of `d` elements into the rows of a tile. Returns their number.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load<'k>(keys: impl Iterator<Item = Floats<'k>>, d: usize, tile: &mut [f32]) -> usize {
    let width = padded_width(d);
    let mut len = 0;
    for key in keys {
        widen(key, &mut tile[len * width..][..d]);
        len += 1;
    }
    len
}
