//! Attention of many query heads over one head of keys that are their own values: the tokens of a sliding window, and
//! entries that each stand for a run of earlier tokens.

use std::ops::Range;

use ds4_dtype::Floats;

use crate::Cpu;
use crate::disjoint::Parts;

/// Rows (query, head) that share one widening of a tile of keys.
const ROWS_PER_TASK: usize = 32;

/// Entries that stand for runs of tokens.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    /// Pages of [page_rows, d]; the last may be shorter.
    pub pages: &'a [Floats<'a>],
    /// Tokens of a run: a query at position p sees the entries below (p + 1) / `rate`.
    pub rate: usize,
    /// The entries that each query looks at, if not all: [L, per_row] ascending, then `u32::MAX`.
    pub selected: Option<&'a [u32]>,
    /// Slots of a query in `selected`.
    pub per_row: usize,
}

/// The inputs of [`windowed_attention`].
#[derive(Clone, Copy, Debug)]
pub struct WindowedAttentionArgs<'a> {
    /// [L, heads, d].
    pub q: &'a [f32],
    /// Pages of [page_rows, d], a row for each token; the last may be shorter.
    pub window: &'a [Floats<'a>],
    /// Position of the first row of `window`.
    pub window_start: usize,
    /// Tokens that a query sees, its own included.
    pub span: usize,
    /// What stands for the tokens before.
    pub entries: Option<Entries<'a>>,
    /// Rows of a page.
    pub page_rows: usize,
    /// Position of the first query.
    pub first_position: usize,
    /// A score of each head that takes part in the softmax and has no value: `[heads]`.
    pub sinks: &'a [f32],
    /// Query heads.
    pub heads: usize,
    /// Size of a head.
    pub d: usize,
    /// Factor of the scores.
    pub scale: f32,
}

impl<'a> WindowedAttentionArgs<'a> {
    /// The key of the token at `position`.
    #[inline]
    pub(crate) fn token(&self, position: usize) -> Floats<'a> {
        self.row(self.window, position - self.window_start)
    }

    /// Entry `index`.
    #[inline]
    pub(crate) fn entry(&self, entries: &Entries<'a>, index: usize) -> Floats<'a> {
        self.row(entries.pages, index)
    }

    #[inline]
    fn row(&self, pages: &'a [Floats<'a>], row: usize) -> Floats<'a> {
        let at = row % self.page_rows * self.d;
        pages[row / self.page_rows].slice(at..at + self.d)
    }

    /// The positions of the tokens that query `i` sees.
    pub(crate) fn seen(&self, i: usize) -> Range<usize> {
        let end = self.first_position + i + 1;
        end.saturating_sub(self.span)..end
    }
}

impl Entries<'_> {
    /// How many entries a query at `position` sees, were none left out.
    pub(crate) fn visible(&self, position: usize) -> usize {
        (position + 1) / self.rate
    }

    /// The entries chosen for query `i`, if there is a choice.
    pub(crate) fn chosen(&self, i: usize) -> Option<&[u32]> {
        let row = &self.selected?[i * self.per_row..(i + 1) * self.per_row];
        let used = row.iter().position(|&id| id == u32::MAX).unwrap_or(row.len());
        Some(&row[..used])
    }
}

/// The queries and heads of one task.
#[derive(Clone, Debug)]
pub(crate) struct WindowedPart {
    pub(crate) queries: Range<usize>,
    pub(crate) heads: Range<usize>,
}

/// `out[i, h]` = sum of weights * keys, with weights softmax(`scale` * `q[i, h]` * keys) over what query `i` sees: the
/// last `span` tokens up to its own, then entries in ascending order, and the sink of head `h`. `out` is [L, heads, d].
pub fn windowed_attention(cpu: &Cpu, args: &WindowedAttentionArgs<'_>, out: &mut [f32]) {
    let WindowedAttentionArgs { q, heads, d, .. } = *args;
    debug_assert_eq!(q.len(), out.len());
    debug_assert_eq!(args.sinks.len(), heads);
    let tokens = q.len() / (heads * d);
    if tokens == 0 {
        return;
    }
    let selects = args.entries.is_some_and(|entries| entries.selected.is_some());
    let queries_per_task = if selects { 1 } else { (ROWS_PER_TASK / heads).max(1) };
    let query_blocks = tokens.div_ceil(queries_per_task);
    // With few queries the heads are divided too, at the price of reading the keys more than once.
    let splits = cpu.threads().div_ceil(query_blocks).min(heads).max(1);
    let head_block = heads.div_ceil(splits);
    let splits = heads.div_ceil(head_block);
    let entries = args.entries.map_or(0, |entries| match entries.selected {
        Some(_) => entries.per_row,
        None => entries.visible(args.first_position + tokens),
    });
    let cost = 2 * tokens * heads * d * (args.span.min(args.first_position + tokens) + entries);
    let out = Parts::new(out);
    cpu.for_each_task(query_blocks * splits, cost, &|task| {
        let (block, first_head) = (task / splits, task % splits * head_block);
        let part = WindowedPart {
            queries: block * queries_per_task..tokens.min((block + 1) * queries_per_task),
            heads: first_head..(first_head + head_block).min(heads),
        };
        let first = (part.queries.start * heads + first_head) * d;
        // SAFETY: each task has its own queries and heads.
        let mut out = unsafe { out.columns(first, part.queries.len(), heads * d, part.heads.len() * d) };
        dispatch!(cpu, windowed_attention::part(args, &part, &mut out));
    });
}
