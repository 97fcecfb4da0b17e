//! Causal attention over a paged cache, dense or over selected blocks.

use std::ops::Range;

use ds4_dtype::Floats;

use crate::Cpu;
use crate::disjoint::Parts;

/// Rows (query, head) that share one widening of a tile of keys and values.
const ROWS_PER_TASK: usize = 32;

/// The blocks of earlier tokens that each query looks at.
#[derive(Clone, Copy, Debug)]
pub struct BlockSelection<'a> {
    /// Tokens of a block.
    pub block: usize,
    /// Slots of a query.
    pub per_row: usize,
    /// [L, per_row]: block numbers ascending, then `u32::MAX` in slots that are not used.
    pub ids: &'a [u32],
}

/// The inputs of [`attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionArgs<'a> {
    /// [L, heads, d].
    pub q: &'a [f32],
    /// Pages of [page_rows, kv_heads, d]; the last may be shorter.
    pub keys: &'a [Floats<'a>],
    /// Pages of [page_rows, kv_heads, dv]; the last may be shorter.
    pub values: &'a [Floats<'a>],
    /// Tokens of a page.
    pub page_rows: usize,
    /// Position of the first query; query `i` sees the keys 0 to `first_position + i`.
    pub first_position: usize,
    /// Heads of keys and values; `heads` is a multiple.
    pub kv_heads: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Size of a query and key head.
    pub d: usize,
    /// Size of a value head.
    pub dv: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Without one, each query sees all keys up to its own. With one, only the listed blocks and the tail: the tokens
    /// from the last whole block's end to its own position.
    pub selection: Option<BlockSelection<'a>>,
}

impl<'a> AttentionArgs<'a> {
    /// The keys of head `kv_head` at `position`.
    #[inline]
    pub(crate) fn key(&self, position: usize, kv_head: usize) -> Floats<'a> {
        let row = (position % self.page_rows * self.kv_heads + kv_head) * self.d;
        self.keys[position / self.page_rows].slice(row..row + self.d)
    }

    /// The values of head `kv_head` at `position`.
    #[inline]
    pub(crate) fn value(&self, position: usize, kv_head: usize) -> Floats<'a> {
        let row = (position % self.page_rows * self.kv_heads + kv_head) * self.dv;
        self.values[position / self.page_rows].slice(row..row + self.dv)
    }

    /// The runs of positions that queries `queries` see, ascending; a query sees those up to its own position.
    ///
    /// With a selection `queries` is a single one.
    pub(crate) fn visible(
        &self,
        queries: Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + Clone + use<'a> {
        let end = self.first_position + queries.end;
        let (ids, block, tail) = match self.selection {
            None => ([].as_slice(), 0, 0..end),
            Some(BlockSelection { block, per_row, ids }) => (
                &ids[queries.start * per_row..(queries.start + 1) * per_row],
                block,
                end / block * block..end,
            ),
        };
        let blocks = ids.iter().take_while(|&&id| id != u32::MAX).map(move |&id| id as usize * block);
        blocks.map(move |first| first..first + block).chain(std::iter::once(tail))
    }
}

/// The queries and heads of one task: `queries` of the call, `heads` that share the key head `kv_head`.
#[derive(Clone, Debug)]
pub(crate) struct AttentionPart {
    pub(crate) queries: Range<usize>,
    pub(crate) heads: Range<usize>,
    pub(crate) kv_head: usize,
}

/// `out[i, h]` = softmax(`scale` * `q[i, h]` * keys) * values over the keys that query `i` sees; `out` is [L, heads, dv].
///
/// With a selection the cost does not grow with the context.
pub fn attention(cpu: &Cpu, args: &AttentionArgs<'_>, out: &mut [f32]) {
    let AttentionArgs { q, kv_heads, heads, d, dv, .. } = *args;
    debug_assert!(heads.is_multiple_of(kv_heads));
    debug_assert_eq!(q.len() * dv, out.len() * d);
    let tokens = q.len() / (heads * d);
    debug_assert!(args.selection.is_none_or(|s| s.ids.len() == tokens * s.per_row));
    let group = heads / kv_heads;
    let queries_per_task = if args.selection.is_some() { 1 } else { (ROWS_PER_TASK / group).max(1) };
    let query_blocks = tokens.div_ceil(queries_per_task);
    // With few queries the heads of a group are divided too, at the price of reading their keys more than once.
    let splits = cpu.threads().div_ceil((query_blocks * kv_heads).max(1)).min(group).max(1);
    let head_block = group.div_ceil(splits);
    let splits = group.div_ceil(head_block);
    let keys = args.selection.map_or(args.first_position + tokens, |s| s.block * (s.per_row + 1));
    let cost = tokens * heads * keys * (d + dv);
    let out = Parts::new(out);
    cpu.for_each_task(query_blocks * kv_heads * splits, cost, &|task| {
        let (block, kv_head) = (task / splits / kv_heads, task / splits % kv_heads);
        let first_head = kv_head * group + task % splits * head_block;
        let part = AttentionPart {
            queries: block * queries_per_task..tokens.min((block + 1) * queries_per_task),
            heads: first_head..(first_head + head_block).min((kv_head + 1) * group),
            kv_head,
        };
        // SAFETY: each task has its own queries and heads.
        let mut out = unsafe {
            out.columns(
                (part.queries.start * heads + first_head) * dv,
                part.queries.len(),
                heads * dv,
                part.heads.len() * dv,
            )
        };
        dispatch!(cpu, attention::part(args, &part, &mut out));
    });
}
