//! The rows (query, head) of an attention task: each a softmax-weighted sum that takes in its terms a tile of keys at a time.
//!
//! A tile is widened once for all rows. A row's result depends on the tiles and on what it sees of them, not on the rows
//! that share the task.

use std::arch::x86_64::*;
use std::ops::Range;

use super::exp::exp;
use super::lanes::{LANES, fold, load, map, store, sum, update};
use super::panel::{COLUMNS, Sums, accumulate, finish};
use super::reduce::largest;
use crate::disjoint::Columns;
use crate::rows::padded_width;
use crate::scratch::Scratch;

/// Keys of a tile.
pub(crate) const TILE: usize = 2 * COLUMNS;

/// Queries of a task and what is known of their sums after some tiles.
pub(crate) struct AttentionRows {
    /// Scaled and padded.
    queries: Scratch,
    /// Rows of a query.
    heads: usize,
    /// Padded sizes of a key and of a value.
    d: usize,
    dv: usize,
    /// Largest score of each row so far.
    max: Scratch,
    /// Sum of exp(score - max) of each row.
    weight: Scratch,
    /// Sum of exp(score - max) * value of each row.
    values: Scratch,
    /// Partial sums of the scores.
    sums: Scratch,
    scores: Scratch,
}

impl AttentionRows {
    /// The rows of `queries` and `heads` of `q` [L, all heads, d] times `scale`, for values of `dv` elements.
    ///
    /// The row of head `h` starts from a largest score and a sum of weights: `start(h)`.
    pub(crate) fn new(
        q: &[f32],
        [all_heads, d, dv]: [usize; 3],
        scale: f32,
        queries: &Range<usize>,
        heads: &Range<usize>,
        start: impl Fn(usize) -> (f32, f32),
    ) -> Self {
        let (width, value_width) = (padded_width(d), padded_width(dv));
        let count = queries.len() * heads.len();
        let mut rows = Self {
            queries: Scratch::filled(count * width, 0.0),
            heads: heads.len(),
            d: width,
            dv: value_width,
            max: Scratch::new(count),
            weight: Scratch::new(count),
            values: Scratch::filled(count * value_width, 0.0),
            sums: Scratch::new(count * COLUMNS * LANES),
            scores: Scratch::new(count * TILE),
        };
        let places = queries.clone().flat_map(|query| heads.clone().map(move |head| (query, head)));
        for (i, (query, head)) in places.enumerate() {
            let q = &q[(query * all_heads + head) * d..][..d];
            rows.queries[i * width..].iter_mut().zip(q).for_each(|(out, q)| *out = q * scale);
            (rows.max[i], rows.weight[i]) = start(head);
        }
        rows
    }

    /// Takes in the first `len` keys of a tile and their values, of which query `i` of the task sees `seen(i)`.
    ///
    /// Rows of `keys` and `values` are padded with zeros.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn take(
        &mut self,
        keys: &[f32],
        values: &[f32],
        len: usize,
        seen: impl Fn(usize) -> Range<usize>,
    ) {
        self.score(keys, len);
        let scores = self.scores.as_chunks_mut::<TILE>().0;
        let totals =
            self.max.iter_mut().zip(self.weight.iter_mut()).zip(self.values.chunks_exact_mut(self.dv));
        for (i, (((max, weight), sums), scores)) in totals.zip(scores).enumerate() {
            let seen = seen(i / self.heads);
            if !seen.is_empty() {
                let values = values[seen.start * self.dv..seen.end * self.dv].as_chunks().0;
                Row { max, weight, values: sums.as_chunks_mut().0 }.add(&mut scores[seen], values);
            }
        }
    }

    /// The scores of the first `len` of `keys`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn score(&mut self, keys: &[f32], len: usize) {
        let d = self.d;
        let query = |i: usize| self.queries[i * d..][..d].as_chunks().0;
        let sums: &mut [Sums] = self.sums.as_chunks_mut().0.as_chunks_mut().0;
        let scores = self.scores.as_chunks_mut::<TILE>().0;
        for first in (0..len).step_by(COLUMNS) {
            let count = COLUMNS.min(len - first);
            let keys = keys[first * d..(first + count) * d].as_chunks().0;
            sums.fill([[0.0; LANES]; COLUMNS]);
            accumulate(query, keys, d / LANES, sums);
            for (sums, scores) in sums.iter().zip(&mut *scores) {
                finish(sums, &mut scores[first..first + count]);
            }
        }
    }

    /// `out` row `i` = the weighted sums, `dv` elements each, of the heads of query `i` of the task.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn finish(&self, dv: usize, out: &mut Columns<'_, f32>) {
        for (i, (weight, values)) in self.weight.iter().zip(self.values.chunks_exact(self.dv)).enumerate() {
            let (query, head) = (i / self.heads, i % self.heads);
            let factor = _mm256_set1_ps(1.0 / weight);
            let out = &mut out.row(query)[head * dv..(head + 1) * dv];
            map(&values[..dv], out, |v| _mm256_mul_ps(v, factor));
        }
    }
}

/// What is known of one row.
struct Row<'a> {
    max: &'a mut f32,
    weight: &'a mut f32,
    values: &'a mut [[f32; LANES]],
}

impl Row<'_> {
    /// Takes in a row of `values` for each score. Overwrites the scores.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add(&mut self, scores: &mut [f32], values: &[[f32; LANES]]) {
        let max = self.max.max(largest(scores));
        let factor = sum(exp(_mm256_setr_ps(*self.max - max, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9)));
        *self.max = max;
        let max = _mm256_set1_ps(max);
        update(scores, |score| exp(_mm256_sub_ps(score, max)));
        *self.weight = *self.weight * factor + sum(fold(scores, |acc, weight| _mm256_add_ps(acc, weight)));
        let factor = _mm256_set1_ps(factor);
        let width = self.values.len();
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
