//! Attention of many query heads over one head of keys that are their own values: a sliding window of tokens, and
//! entries that stand for runs of earlier tokens, all of them or those that an indexer selects.
//!
//! Queries and the output go through low-rank projections. Keys carry their rotation into the values, so the output is
//! turned back at the query's position, which leaves only the distance in it. Source: DeepSeek-AI, "DeepSeek-V4".

use ds4_array::ops::{self, CompressedEntries, HeadRows, TokenWindow, Weight};
use ds4_array::{Array, DType, Stream};

use crate::cache::WindowedCache;
use crate::{CompressorSizes, KeyCompressor, LayerError, Rope, RopeRows, Scope, Segment, per_segment};

/// Sizes of the layer.
#[derive(Clone, Copy, Debug)]
pub struct SharedKeySizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width between the two projections of queries.
    pub query_rank: usize,
    /// Tokens that a query sees one by one, its own included.
    pub span: usize,
    /// Groups of heads that are projected separately.
    pub output_groups: usize,
    /// Width of a group after its projection.
    pub output_rank: usize,
}

/// Sizes of the index over entries.
#[derive(Clone, Copy, Debug)]
pub struct EntryIndexSizes {
    /// Query heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Entries that a query may select.
    pub top: usize,
}

/// Chooses entries: a compressor of its own, and queries that score its entries.
struct EntryIndex {
    compressor: KeyCompressor,
    q_b_proj: Weight,
    weights_proj: Weight,
    sizes: EntryIndexSizes,
}

/// The layer.
pub struct SharedKeyAttention {
    q_a_proj: Weight,
    q_a_norm: Array,
    q_b_proj: Weight,
    kv_proj: Weight,
    kv_norm: Array,
    o_a_proj: Weight,
    o_b_proj: Weight,
    sinks: Array,
    compressor: Option<KeyCompressor>,
    index: Option<EntryIndex>,
    sizes: SharedKeySizes,
    eps: f32,
}

/// What the layer computes for its rows before attention.
struct Projected {
    /// [N, H, D], rotated.
    q: Array,
    /// [N, D], rotated.
    keys: Array,
    /// Raw rows of the compressor.
    raw: Option<Array>,
    index: Option<IndexRows>,
}

/// The same for the index.
struct IndexRows {
    /// [N, H, D], rotated.
    q: Array,
    /// Weights of the heads, [N, H].
    weights: Array,
    /// Raw rows of the index's compressor.
    raw: Array,
}

impl SharedKeyAttention {
    /// Loads the tensors below `scope`; with `compressor` there are entries, with `index` they are selected.
    pub fn load(
        scope: &Scope<'_>,
        sizes: SharedKeySizes,
        compressor: Option<CompressorSizes>,
        index: Option<EntryIndexSizes>,
        eps: f32,
    ) -> Self {
        let SharedKeySizes { hidden, heads, head_dim, query_rank, output_groups, output_rank, .. } = sizes;
        let place = scope.at("compressor");
        let load_index = |(index, compressor): (EntryIndexSizes, CompressorSizes)| {
            EntryIndex::load(&place.at("indexer"), index, compressor, query_rank, eps)
        };
        Self {
            q_a_proj: scope.weight("q_a_proj", query_rank, hidden),
            q_a_norm: scope.array("q_a_norm.weight", &[query_rank]),
            q_b_proj: scope.weight("q_b_proj", heads * head_dim, query_rank),
            kv_proj: scope.weight("kv_proj", head_dim, hidden),
            kv_norm: scope.array("kv_norm.weight", &[head_dim]),
            o_a_proj: scope.weight("o_a_proj", output_groups * output_rank, heads * head_dim / output_groups),
            o_b_proj: scope.weight("o_b_proj", hidden, output_groups * output_rank),
            sinks: scope.map_f32("sinks", &[heads], |x| x),
            compressor: compressor.map(|compressor| KeyCompressor::load(&place, compressor, eps)),
            index: index.zip(compressor).map(load_index),
            sizes,
            eps,
        }
    }

    /// A cache without tokens whose keys and entries are stored as `dtype`. The index stays in float32.
    pub fn new_cache(&self, stream: &Stream, dtype: DType) -> WindowedCache {
        let entries = self.compressor.as_ref().map(|compressor| compressor.new_cache(stream, dtype));
        let index = self.index.as_ref().map(|index| index.compressor.new_cache(stream, DType::F32));
        WindowedCache::new(stream, self.sizes.span, self.sizes.head_dim, dtype, entries, index)
    }

    /// `x` [N, hidden] through the layer; `rows` are the angles of its rows, `rope` those of any position.
    pub fn forward(
        &self,
        x: &Array,
        segments: &[Segment],
        caches: &mut [&mut WindowedCache],
        rope: &Rope,
        rows: &RopeRows,
    ) -> Result<Array, LayerError> {
        let SharedKeySizes { heads, head_dim, output_groups, output_rank, .. } = self.sizes;
        let tokens = x.shape()[0];
        let projected = self.project(x, rows)?;
        let out = per_segment(segments, |i, segment| self.attend(&projected, segment, caches[i], rope))?;
        let out = ops::rope_pairs(&out, &rows.cos, &ops::neg(&rows.sin)?)?;
        let groups = ops::reshape(&out, [tokens, output_groups, heads * head_dim / output_groups])?;
        let at = HeadRows { stride: output_rank, first: 0, rows: output_rank };
        let narrow = ops::head_linear(&groups, &self.o_a_proj, at)?;
        Ok(ops::linear(&ops::reshape(&narrow, [tokens, output_groups * output_rank])?, &self.o_b_proj)?)
    }

    /// The entries that each of the rows `x` selects, [L, top] u32 ascending and padded with `u32::MAX`, and the tokens
    /// of an entry; `None` in a layer that does not select. For checks: the rows must be in `cache` already.
    pub fn selected_entries(
        &self,
        x: &Array,
        cache: &WindowedCache,
        rows: &RopeRows,
        first_position: usize,
    ) -> Result<Option<(Array, usize)>, LayerError> {
        let (Some(index), Some(entries)) = (&self.index, &cache.index) else { return Ok(None) };
        let rows = index.project(x, &self.query_residual(x)?, rows)?;
        let ids = index.select(&rows.q, &rows.weights, entries.entries.pages(), first_position)?;
        Ok(Some((ids, index.compressor.rate())))
    }

    fn query_residual(&self, x: &Array) -> Result<Array, LayerError> {
        let narrow = ops::linear(x, &self.q_a_proj)?;
        Ok(ops::rms_norm(&narrow, Some(&self.q_a_norm), 0.0, self.sizes.query_rank, self.eps)?)
    }

    fn project(&self, x: &Array, rows: &RopeRows) -> Result<Projected, LayerError> {
        let SharedKeySizes { heads, head_dim, .. } = self.sizes;
        let tokens = x.shape()[0];
        let residual = self.query_residual(x)?;
        let q = ops::reshape(&ops::linear(&residual, &self.q_b_proj)?, [tokens, heads, head_dim])?;
        let q = ops::rms_norm(&q, None, 0.0, head_dim, self.eps)?;
        let keys =
            ops::rms_norm(&ops::linear(x, &self.kv_proj)?, Some(&self.kv_norm), 0.0, head_dim, self.eps)?;
        let keys = ops::reshape(&keys, [tokens, 1, head_dim])?;
        let rotate = |x: &Array| ops::rope_pairs(x, &rows.cos, &rows.sin);
        Ok(Projected {
            q: rotate(&q)?,
            keys: ops::reshape(&rotate(&keys)?, [tokens, head_dim])?,
            raw: self.compressor.as_ref().map(|compressor| compressor.project(x)).transpose()?,
            index: self.index.as_ref().map(|index| index.project(x, &residual, rows)).transpose()?,
        })
    }

    /// Appends a segment's keys and attends from its queries: [L, H, D].
    fn attend(
        &self,
        projected: &Projected,
        segment: &Segment,
        cache: &mut WindowedCache,
        rope: &Rope,
    ) -> Result<Array, LayerError> {
        cache.append(&segment.rows_of(&projected.keys)?)?;
        if let (Some(compressor), Some(entries), Some(raw)) =
            (&self.compressor, &mut cache.entries, &projected.raw)
        {
            compressor.append(entries, &segment.rows_of(raw)?, rope)?;
        }
        let mut selected = None;
        if let (Some(index), Some(entries), Some(rows)) = (&self.index, &mut cache.index, &projected.index) {
            index.compressor.append(entries, &segment.rows_of(&rows.raw)?, rope)?;
            // With no more entries than may be selected every one is, and the bits are those of the plain path.
            if entries.entries.len() > index.sizes.top {
                let (q, weights) = (segment.rows_of(&rows.q)?, segment.rows_of(&rows.weights)?);
                selected =
                    Some(index.select(&q, &weights, entries.entries.pages(), segment.first_position)?);
            }
        }
        let (pages, start) = cache.window();
        let entries = self.compressor.as_ref().zip(cache.entries.as_ref());
        let entries = entries.map(|(compressor, entries)| CompressedEntries {
            pages: entries.entries.pages(),
            rate: compressor.rate(),
            selected: selected.as_ref(),
        });
        Ok(ops::windowed_attention(
            &segment.rows_of(&projected.q)?,
            TokenWindow { pages, start, span: self.sizes.span },
            entries,
            &self.sinks,
            segment.first_position,
            (self.sizes.head_dim as f32).sqrt().recip(),
        )?)
    }
}

impl EntryIndex {
    fn load(
        scope: &Scope<'_>,
        sizes: EntryIndexSizes,
        entries: CompressorSizes,
        query_rank: usize,
        eps: f32,
    ) -> Self {
        let EntryIndexSizes { heads, head_dim, .. } = sizes;
        Self {
            compressor: KeyCompressor::load(scope, CompressorSizes { width: head_dim, ..entries }, eps),
            q_b_proj: scope.weight("q_b_proj", heads * head_dim, query_rank),
            weights_proj: scope.weight("scorer.weights_proj", heads, entries.hidden),
            sizes,
        }
    }

    fn project(&self, x: &Array, residual: &Array, rows: &RopeRows) -> Result<IndexRows, LayerError> {
        let EntryIndexSizes { heads, head_dim, .. } = self.sizes;
        let q = ops::linear(residual, &self.q_b_proj)?;
        let q = ops::reshape(&q, [x.shape()[0], heads, head_dim])?;
        let weights = ops::linear(x, &self.weights_proj)?;
        Ok(IndexRows {
            q: ops::rope_pairs(&q, &rows.cos, &rows.sin)?,
            weights: ops::scale(&weights, (heads as f32).sqrt().recip())?,
            raw: self.compressor.project(x)?,
        })
    }

    fn select(
        &self,
        q: &Array,
        weights: &Array,
        pages: &[Array],
        first_position: usize,
    ) -> Result<Array, LayerError> {
        let EntryIndexSizes { head_dim, top, .. } = self.sizes;
        let scale = (head_dim as f32).sqrt().recip();
        Ok(ops::index_select(q, Some(weights), pages, first_position, self.compressor.rate(), top, scale)?)
    }
}
