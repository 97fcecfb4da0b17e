//! Causal attention with a running softmax over tiles of keys.
//!
//! A tile of keys and values is widened once for all rows (query, head) of the task. Tiles lie at fixed positions and a
//! row takes them in ascending order, so a row's result does not depend on the queries it shares the call with.

use std::arch::x86_64::*;

use super::convert::widen;
use super::exp::exp;
use super::lanes::{LANES, fold, load, map, store, sum, update};
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::reduce::largest;
use crate::AttentionArgs;
use crate::disjoint::Columns;
use crate::ops::AttentionPart;
use crate::rows::padded_width;
use crate::scratch::Scratch;

/// Keys of a tile.
const TILE: usize = 2 * COLUMNS;

/// What is known of a row (query, head) after some tiles.
struct Row<'a> {
    /// Largest score so far.
    max: &'a mut f32,
    /// Sum of exp(score - max).
    weight: &'a mut f32,
    /// Sum of exp(score - max) * value.
    values: &'a mut [[f32; LANES]],
}

/// Keys and values of a tile as float32, rows padded with zeros.
struct Tile {
    keys: Scratch,
    values: Scratch,
    len: usize,
}

/// `out` row `i` = the heads of the part for its query `i`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn part(args: &AttentionArgs<'_>, part: &AttentionPart, out: &mut Columns<'_, f32>) {
    let (d, dv) = (padded_width(args.d), padded_width(args.dv));
    let count = part.queries.len() * part.heads.len();
    let queries = scaled_queries(args, part);
    let mut max = Scratch::filled(count, f32::NEG_INFINITY);
    let mut weight = Scratch::filled(count, 0.0);
    let mut values = Scratch::filled(count * dv, 0.0);
    // Zeros, since the ends of padded rows are never written.
    let (keys, tile_values) = (Scratch::filled(TILE * d, 0.0), Scratch::filled(TILE * dv, 0.0));
    let mut tile = Tile { keys, values: tile_values, len: 0 };
    let (mut sums, mut scores) = (Scratch::new(count * COLUMNS * LANES), Scratch::new(count * TILE));
    let sums: &mut [Sums] = sums.as_chunks_mut().0.as_chunks_mut().0;
    let scores = scores.as_chunks_mut().0;
    for range in args.visible(part.queries.clone()) {
        for first in range.clone().step_by(TILE) {
            tile.load(args, part.kv_head, first, TILE.min(range.end - first));
            tile.score(&queries, d, sums, scores);
            let totals = max.iter_mut().zip(weight.iter_mut()).zip(values.chunks_exact_mut(dv));
            for (i, (((max, weight), values), scores)) in totals.zip(scores.iter_mut()).enumerate() {
                let position = args.first_position + part.queries.start + i / part.heads.len();
                let seen = tile.len.min((position + 1).saturating_sub(first));
                if seen > 0 {
                    let mut row = Row { max, weight, values: values.as_chunks_mut().0 };
                    row.add(&mut scores[..seen], &tile.values, dv);
                }
            }
        }
    }
    for (i, (weight, values)) in weight.iter().zip(values.chunks_exact(dv)).enumerate() {
        let (query, head) = (i / part.heads.len(), i % part.heads.len());
        let factor = _mm256_set1_ps(1.0 / weight);
        let values = &values[..args.dv];
        map(values, &mut out.row(query)[head * args.dv..(head + 1) * args.dv], |v| _mm256_mul_ps(v, factor));
    }
}

/// Rows (query, head) of the part, scaled and padded.
fn scaled_queries(args: &AttentionArgs<'_>, part: &AttentionPart) -> Scratch {
    let width = padded_width(args.d);
    let mut out = Scratch::filled(part.queries.len() * part.heads.len() * width, 0.0);
    let rows = part.queries.clone().flat_map(|query| part.heads.clone().map(move |head| (query, head)));
    for (out, (query, head)) in out.chunks_exact_mut(width).zip(rows) {
        let q = &args.q[(query * args.heads + head) * args.d..][..args.d];
        out.iter_mut().zip(q).for_each(|(out, q)| *out = q * args.scale);
    }
    out
}

impl Tile {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn load(&mut self, args: &AttentionArgs<'_>, kv_head: usize, first: usize, len: usize) {
        let (d, dv) = (padded_width(args.d), padded_width(args.dv));
        self.len = len;
        for i in 0..len {
            widen(args.key(first + i, kv_head), &mut self.keys[i * d..][..args.d]);
            widen(args.value(first + i, kv_head), &mut self.values[i * dv..][..args.dv]);
        }
    }

    /// `scores` = `queries` * keys, for rows of `d` elements.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn score(&self, queries: &[f32], d: usize, sums: &mut [Sums], scores: &mut [[f32; TILE]]) {
        let query = |i: usize| queries[i * d..][..d].as_chunks().0;
        for first in (0..self.len).step_by(COLUMNS) {
            let count = COLUMNS.min(self.len - first);
            let keys = self.keys[first * d..(first + count) * d].as_chunks().0;
            sums.fill([[0.0; LANES]; COLUMNS]);
            accumulate(query, keys, d / LANES, sums);
            for (sums, scores) in sums.iter().zip(&mut *scores) {
                finish(sums, &mut scores[first..first + count]);
            }
        }
    }
}

impl Row<'_> {
    /// Takes in the keys of a tile that the row sees; `values` has rows of `dv` elements. Overwrites the scores.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add(&mut self, scores: &mut [f32], values: &[f32], dv: usize) {
        let max = self.max.max(largest(scores));
        let factor = sum(exp(_mm256_setr_ps(*self.max - max, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9)));
        *self.max = max;
        let max = _mm256_set1_ps(max);
        update(scores, |score| exp(_mm256_sub_ps(score, max)));
        *self.weight = *self.weight * factor + sum(fold(scores, |acc, weight| _mm256_add_ps(acc, weight)));
        let factor = _mm256_set1_ps(factor);
        let values = values.as_chunks().0;
        let width = dv / LANES;
        let (groups, rest) = self.values.as_chunks_mut::<8>();
        for (g, group) in groups.iter_mut().enumerate() {
            add_values(group, 8 * g, factor, scores, values, width);
        }
        let done = 8 * groups.len();
        for (v, vector) in rest.as_chunks_mut::<1>().0.iter_mut().enumerate() {
            add_values(vector, done + v, factor, scores, values, width);
        }
    }
}

/// `acc` = `acc` * factor + the weighted sum of the vectors from `at` on of the rows of `values`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_values<const N: usize>(
    acc: &mut [[f32; LANES]; N],
    at: usize,
    factor: __m256,
    weights: &[f32],
    values: &[[f32; LANES]],
    width: usize,
) {
    let mut sums = [_mm256_setzero_ps(); N];
    for n in 0..N {
        sums[n] = _mm256_mul_ps(load(&acc[n]), factor);
    }
    for (weight, row) in weights.iter().zip(values.chunks_exact(width)) {
        let weight = _mm256_set1_ps(*weight);
        let row = &row[at..at + N];
        for n in 0..N {
            sums[n] = _mm256_fmadd_ps(weight, load(&row[n]), sums[n]);
        }
    }
    for n in 0..N {
        store(sums[n], &mut acc[n]);
    }
}
