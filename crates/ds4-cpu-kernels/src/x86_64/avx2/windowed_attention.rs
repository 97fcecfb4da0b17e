//! Attention over a window and entries, with a running softmax over tiles of keys.
//!
//! A tile is widened once for all rows (query, head) of the task. Tiles of the window lie at fixed positions, tiles of
//! entries at fixed places in a query's list, and a row takes them in ascending order: its result does not depend on the
//! queries that it shares the call with.

use std::ops::Range;

use ds4_dtype::Floats;

use super::convert::widen;
use super::lanes::LANES;
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::running_softmax::RunningSoftmax;
use crate::WindowedAttentionArgs;
use crate::disjoint::Columns;
use crate::ops::WindowedPart;
use crate::rows::padded_width;

/// Keys of a tile.
const TILE: usize = 2 * COLUMNS;

/// The rows (query, head) of a task and its scratch memory.
struct Task {
    /// Scaled and padded.
    queries: Vec<f32>,
    rows: Vec<RunningSoftmax>,
    heads: usize,
    /// Padded size of a head.
    d: usize,
    tile: Vec<f32>,
    sums: Vec<Sums>,
    scores: Vec<[f32; TILE]>,
}

/// `out` row `i` = the heads of the part for its query `i`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn part(args: &WindowedAttentionArgs<'_>, part: &WindowedPart, out: &mut Columns<'_, f32>) {
    let mut task = Task::new(args, part);
    let first = args.seen(part.queries.start).start;
    let end = args.first_position + part.queries.end;
    let mut start = first / TILE * TILE;
    while start < end {
        let positions = start.max(first)..end.min(start + TILE);
        let base = positions.start;
        task.take(args, positions.clone().map(|position| args.token(position)), |i| {
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
            task.take(args, places.clone().map(entry), |i| {
                let visible = entries.visible(args.first_position + part.queries.start + i);
                within(&(0..chosen.map_or(visible, <[u32]>::len)), &places, start)
            });
        }
    }
    for (i, row) in task.rows.iter().enumerate() {
        let (query, head) = (i / task.heads, i % task.heads);
        row.finish(&mut out.row(query)[head * args.d..(head + 1) * args.d]);
    }
}

/// The part of `seen` that lies in `tile`, counted from `base`.
fn within(seen: &Range<usize>, tile: &Range<usize>, base: usize) -> Range<usize> {
    let start = seen.start.max(tile.start);
    start - base..seen.end.min(tile.end).max(start) - base
}

impl Task {
    fn new(args: &WindowedAttentionArgs<'_>, part: &WindowedPart) -> Self {
        let d = padded_width(args.d);
        let rows =
            || part.queries.clone().flat_map(|query| part.heads.clone().map(move |head| (query, head)));
        let count = part.queries.len() * part.heads.len();
        let mut queries = vec![0.0; count * d];
        for (out, (query, head)) in queries.chunks_exact_mut(d).zip(rows()) {
            let q = &args.q[(query * args.heads + head) * args.d..][..args.d];
            out.iter_mut().zip(q).for_each(|(out, q)| *out = q * args.scale);
        }
        let row = |(_, head): (usize, usize)| RunningSoftmax::with_sink(args.sinks[head], d / LANES);
        Self {
            queries,
            rows: rows().map(row).collect(),
            heads: part.heads.len(),
            d,
            tile: vec![0.0; TILE * d],
            sums: vec![[[0.0; LANES]; COLUMNS]; count],
            scores: vec![[0.0; TILE]; count],
        }
    }

    /// Takes in a tile of `keys`, of which the query `i` of the task sees `seen(i)`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn take<'k>(
        &mut self,
        args: &WindowedAttentionArgs<'_>,
        keys: impl Iterator<Item = Floats<'k>>,
        seen: impl Fn(usize) -> Range<usize>,
    ) {
        let d = self.d;
        let mut len = 0;
        for key in keys {
            widen(key, &mut self.tile[len * d..][..args.d]);
            len += 1;
        }
        let query = |i: usize| self.queries[i * d..][..d].as_chunks().0;
        for first in (0..len).step_by(COLUMNS) {
            let count = COLUMNS.min(len - first);
            let keys = self.tile[first * d..(first + count) * d].as_chunks().0;
            self.sums.fill([[0.0; LANES]; COLUMNS]);
            accumulate(query, keys, d / LANES, &mut self.sums);
            for (sums, scores) in self.sums.iter().zip(&mut self.scores) {
                finish(sums, &mut scores[first..first + count]);
            }
        }
        for (i, (row, scores)) in self.rows.iter_mut().zip(&mut self.scores).enumerate() {
            let seen = seen(i / self.heads);
            if !seen.is_empty() {
                let values = self.tile[seen.start * d..seen.end * d].as_chunks().0;
                row.add(&mut scores[seen], values);
            }
        }
    }
}
