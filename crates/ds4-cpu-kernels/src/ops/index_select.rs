//! The indexer of sparse attention: which blocks of keys each query should look at.

use std::ops::Range;

use ds4_dtype::Floats;

use crate::disjoint::Parts;
use crate::scratch::Scratch;
use crate::{Cpu, scalar};

/// Queries of one task: they share one widening of the keys.
const QUERIES_PER_TASK: usize = 8;

/// The inputs of [`index_select`].
#[derive(Clone, Copy, Debug)]
pub struct IndexSelectArgs<'a> {
    /// [L, heads, d].
    pub q: &'a [f32],
    /// [L, heads]: how much each head counts; `None` if all count 1.
    pub weights: Option<&'a [f32]>,
    /// Pages of [page_rows, d], a row for each block; the last may be shorter.
    pub keys: &'a [Floats<'a>],
    /// Blocks of a page.
    pub page_rows: usize,
    /// Position of the first query.
    pub first_position: usize,
    /// Tokens of a block.
    pub block: usize,
    /// Blocks to select for a query.
    pub top: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Size of a head.
    pub d: usize,
    /// Factor of the scores.
    pub scale: f32,
}

impl<'a> IndexSelectArgs<'a> {
    /// The key of block `block`.
    #[inline]
    pub(crate) fn key(&self, block: usize) -> Floats<'a> {
        let row = block % self.page_rows * self.d;
        self.keys[block / self.page_rows].slice(row..row + self.d)
    }

    /// What the relu of head `head` of query `i` is multiplied with.
    #[inline]
    pub(crate) fn weight(&self, i: usize, head: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[i * self.heads + head])
    }

    /// Whole blocks that query `i` sees.
    pub(crate) fn visible(&self, i: usize) -> usize {
        (self.first_position + i + 1) / self.block
    }
}

/// `out[i]` = the `top` blocks with the largest `scale` * sum over heads of `weights[i, h]` * relu(`q[i, h]` * key), [L, top].
///
/// Only whole blocks up to query `i` count. Of equal scores the lower block wins. The numbers are written in ascending
/// order; slots left over hold `u32::MAX`.
pub fn index_select(cpu: &Cpu, args: &IndexSelectArgs<'_>, out: &mut [u32]) {
    let IndexSelectArgs { q, top, heads, d, .. } = *args;
    debug_assert_eq!(q.len() * top, out.len() * heads * d);
    debug_assert!(args.weights.is_none_or(|weights| weights.len() * d == q.len()));
    if out.is_empty() {
        return;
    }
    let tokens = out.len() / top;
    if tokens < cpu.threads() {
        return out
            .chunks_exact_mut(top)
            .enumerate()
            .for_each(|(query, out)| select_alone(cpu, args, query, out));
    }
    let per_task = QUERIES_PER_TASK.min(tokens.div_ceil(cpu.threads()));
    let cost = tokens * heads * d * args.visible(tokens - 1);
    let parts = Parts::new(out);
    cpu.for_each_task(tokens.div_ceil(per_task), cost, &|task| {
        let queries = task * per_task..tokens.min((task + 1) * per_task);
        // SAFETY: each task has its own queries.
        let out = unsafe { parts.range(queries.start * top..queries.end * top) };
        select(cpu, args, queries, out);
    });
}

/// One query, with the blocks divided among the threads.
fn select_alone(cpu: &Cpu, args: &IndexSelectArgs<'_>, query: usize, out: &mut [u32]) {
    let blocks = args.visible(query);
    let mut scores = Scratch::new(blocks);
    // With no more blocks than slots all are selected, whatever their scores.
    if blocks > args.top {
        let parts = Parts::new(&mut scores);
        cpu.for_each_range(blocks, args.heads * args.d, |range| {
            // SAFETY: each task has its own blocks.
            let mut scores = unsafe { parts.columns(range.start, 1, blocks, range.len()) };
            dispatch!(cpu, index_select::scores(args, query..query + 1, range, &mut scores));
        });
    }
    choose(&scores, out);
}

/// Several queries, which share the reading of keys.
fn select(cpu: &Cpu, args: &IndexSelectArgs<'_>, queries: Range<usize>, out: &mut [u32]) {
    let stride = args.visible(queries.end - 1);
    let mut scores = Scratch::new(queries.len() * stride);
    if stride > args.top {
        let parts = Parts::new(&mut scores);
        // SAFETY: the only part.
        let mut scores = unsafe { parts.columns(0, queries.len(), stride, stride) };
        dispatch!(cpu, index_select::scores(args, queries.clone(), 0..stride, &mut scores));
    }
    for (i, (query, out)) in queries.zip(out.chunks_exact_mut(args.top)).enumerate() {
        choose(&scores[i * stride..i * stride + args.visible(query)], out);
    }
}

/// The blocks with the largest scores, ascending, and `u32::MAX` in slots left over.
fn choose(scores: &[f32], out: &mut [u32]) {
    let (chosen, unused) = out.split_at_mut(out.len().min(scores.len()));
    scalar::top_k::ascending(scores, chosen);
    unused.fill(u32::MAX);
}
