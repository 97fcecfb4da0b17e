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

/// Keys of a tile.
const TILE: usize = 2 * COLUMNS;

/// What is known of a row (query, head) after some tiles.
struct Row {
    /// Largest score so far.
    max: f32,
    /// Sum of exp(score - max).
    weight: f32,
    /// Sum of exp(score - max) * value.
    values: Vec<[f32; LANES]>,
}

/// Keys and values of a tile as float32, rows padded with zeros.
struct Tile {
    keys: Vec<f32>,
    values: Vec<f32>,
    len: usize,
}

/// `out` row `i` = the heads of the part for its query `i`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn part(args: &AttentionArgs<'_>, part: &AttentionPart, out: &mut Columns<'_, f32>) {
    let (d, dv) = (padded_width(args.d), padded_width(args.dv));
    let count = part.queries.len() * part.heads.len();
    let queries = scaled_queries(args, part);
    let mut rows: Vec<Row> = (0..count)
        .map(|_| Row { max: f32::NEG_INFINITY, weight: 0.0, values: vec![[0.0; LANES]; dv / LANES] })
        .collect();
    let mut tile = Tile { keys: vec![0.0; TILE * d], values: vec![0.0; TILE * dv], len: 0 };
    let mut sums: Vec<Sums> = vec![[[0.0; LANES]; COLUMNS]; count];
    let mut scores = vec![[0.0; TILE]; count];
    for range in args.visible(part.queries.clone()) {
        for first in range.clone().step_by(TILE) {
            tile.load(args, part.kv_head, first, TILE.min(range.end - first));
            tile.score(&queries, d, &mut sums, &mut scores);
            for (i, (row, scores)) in rows.iter_mut().zip(&mut scores).enumerate() {
                let position = args.first_position + part.queries.start + i / part.heads.len();
                let seen = tile.len.min((position + 1).saturating_sub(first));
                if seen > 0 {
                    row.add(&mut scores[..seen], &tile.values, dv);
                }
            }
        }
    }
    for (i, row) in rows.iter().enumerate() {
        let (query, head) = (i / part.heads.len(), i % part.heads.len());
        let factor = _mm256_set1_ps(1.0 / row.weight);
        let values = &row.values.as_flattened()[..args.dv];
        map(values, &mut out.row(query)[head * args.dv..(head + 1) * args.dv], |v| _mm256_mul_ps(v, factor));
    }
}

/// Rows (query, head) of the part, scaled and padded.
fn scaled_queries(args: &AttentionArgs<'_>, part: &AttentionPart) -> Vec<f32> {
    let width = padded_width(args.d);
    let mut out = vec![0.0; part.queries.len() * part.heads.len() * width];
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

impl Row {
    /// Takes in the keys of a tile that the row sees; `values` has rows of `dv` elements. Overwrites the scores.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add(&mut self, scores: &mut [f32], values: &[f32], dv: usize) {
        let max = self.max.max(largest(scores));
        let factor = sum(exp(_mm256_setr_ps(self.max - max, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9)));
        self.max = max;
        let max = _mm256_set1_ps(max);
        update(scores, |score| exp(_mm256_sub_ps(score, max)));
        self.weight = self.weight * factor + sum(fold(scores, |acc, weight| _mm256_add_ps(acc, weight)));
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
