//! Causal attention, dense or over selected blocks.
//!
//! A tile takes the next keys that its queries see, in ascending order and from the first one on, so a row's result does
//! not depend on the queries it shares the call with. Selected blocks are small: tiles that ended with them would spend
//! their time on bringing sums together.

use ds4_dtype::Floats;

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
    let mut positions = args.visible(part.queries.clone()).flatten();
    let mut tile = Tile::next(args, part.kv_head, &mut positions);
    while tile.len > 0 {
        let next = Tile::next(args, part.kv_head, &mut positions);
        next.announce();
        for i in 0..tile.len {
            next.prefetch(i);
            widen(tile.keys[i], &mut keys[i * d..][..args.d]);
            widen(tile.values[i], &mut values[i * dv..][..args.dv]);
        }
        // Without a selection a tile is a run of positions, and a query sees those up to its own.
        let own = args.first_position + part.queries.start + 1;
        let (len, first) = (tile.len, tile.first);
        let seen =
            |i: usize| if args.selection.is_some() { len } else { len.min((own + i).saturating_sub(first)) };
        rows.take(&keys, &values, len, |i| 0..seen(i));
        tile = next;
    }
    rows.finish(args.dv, out);
}

/// The next keys that the queries of a part see, and their values, where they are stored.
struct Tile<'a> {
    keys: [Floats<'a>; TILE],
    values: [Floats<'a>; TILE],
    len: usize,
    /// Position of the first.
    first: usize,
}

impl<'a> Tile<'a> {
    #[inline]
    fn next(args: &AttentionArgs<'a>, kv_head: usize, positions: &mut impl Iterator<Item = usize>) -> Self {
        let nothing = [Floats::F32(&[]); TILE];
        let mut tile = Self { keys: nothing, values: nothing, len: 0, first: 0 };
        for position in positions.take(TILE) {
            if tile.len == 0 {
                tile.first = position;
            }
            tile.keys[tile.len] = args.key(position, kv_head);
            tile.values[tile.len] = args.value(position, kv_head);
            tile.len += 1;
        }
        tile
    }

    /// Tells memory of all places at once. Selected blocks lie anywhere: the tables that say where a page of memory is are walked
    /// through for several at a time.
    #[inline]
    fn announce(&self) {
        for i in 0..self.len {
            prefetch::first(self.keys[i]);
            prefetch::first(self.values[i]);
        }
    }

    /// Fetches key and value `i`.
    #[inline]
    fn prefetch(&self, i: usize) {
        prefetch::floats(self.keys[i]);
        prefetch::floats(self.values[i]);
    }
}
