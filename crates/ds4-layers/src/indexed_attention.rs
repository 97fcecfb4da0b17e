//! Grouped-query attention with an output gate, over the keys that an indexer selects.

use ds4_array::Array;
use ds4_array::ops::{self, BlockSelection, Weight};

use crate::cache::AttentionCache;
use crate::{IndexerSizes, LayerError, QsaIndexer, Rope, RopeRows, Scope, Segment, per_segment};

/// Sizes of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// The layer.
pub struct IndexedAttention {
    q_proj: Weight,
    k_proj: Weight,
    v_proj: Weight,
    o_proj: Weight,
    q_norm: Array,
    k_norm: Array,
    indexer: QsaIndexer,
    sizes: AttentionSizes,
    norm_offset: f32,
    eps: f32,
}

/// What one layer computes for its rows before attention.
struct Projected {
    q: Array,
    k: Array,
    v: Array,
    index_q: Array,
    index_k: Array,
}

impl IndexedAttention {
    /// Loads the tensors below `scope`.
    pub fn load(
        scope: &Scope<'_>,
        sizes: AttentionSizes,
        indexer: IndexerSizes,
        norm_offset: f32,
        eps: f32,
    ) -> Self {
        let AttentionSizes { hidden, heads, key_value_heads, head_dim } = sizes;
        Self {
            q_proj: scope.weight("q_proj", heads * 2 * head_dim, hidden),
            k_proj: scope.weight("k_proj", key_value_heads * head_dim, hidden),
            v_proj: scope.weight("v_proj", key_value_heads * head_dim, hidden),
            o_proj: scope.weight("o_proj", hidden, heads * head_dim),
            q_norm: scope.array("q_norm.weight", &[head_dim]),
            k_norm: scope.array("k_norm.weight", &[head_dim]),
            indexer: QsaIndexer::load(&scope.at("indexer"), hidden, indexer, norm_offset, eps),
            sizes,
            norm_offset,
            eps,
        }
    }

    /// `x` [N, H] through the layer; `rows` are the angles of its rows, `rope` those of any position.
    pub fn forward(
        &self,
        x: &Array,
        segments: &[Segment],
        caches: &mut [&mut AttentionCache],
        rope: &Rope,
        rows: &RopeRows,
    ) -> Result<Array, LayerError> {
        let AttentionSizes { heads, head_dim, .. } = self.sizes;
        let tokens = x.shape()[0];
        // Each head's query is followed by its gate.
        // Queries are not needed where only the cache goes on.
        let both = ops::reshape(&ops::linear(x, &self.q_proj)?, [tokens, heads, 2 * head_dim])?;
        let [k, v, index] = ops::linears(x, [&self.k_proj, &self.v_proj, self.indexer.projection()])?;
        let gate = ops::reshape(&ops::slice_columns(&both, head_dim, head_dim)?, [tokens, heads * head_dim])?;
        let projected = self.project([&ops::slice_columns(&both, 0, head_dim)?, &k, &v, &index], rows)?;
        let out = per_segment(segments, |i, segment| self.attend(&projected, segment, caches[i], rope))?;
        let gated = ops::sigmoid_gate(&ops::reshape(&out, [tokens, heads * head_dim])?, &gate)?;
        Ok(ops::linear(&gated, &self.o_proj)?)
    }

    /// The blocks that each of the rows `x` selects, [L, top] u32 as [`ops::index_select`] gives them, and the tokens in a
    /// block. For checks: the keys of the rows must be in `cache` already.
    pub fn selected_blocks(
        &self,
        x: &Array,
        cache: &AttentionCache,
        rows: &RopeRows,
        first_position: usize,
    ) -> Result<(Array, usize), LayerError> {
        let (q, _) = self.indexer.project(&ops::linear(x, self.indexer.projection())?, rows)?;
        Ok((self.indexer.select(&q, &cache.index, first_position)?, self.indexer.sizes().block))
    }

    fn project(&self, [q, k, v, index]: [&Array; 4], rows: &RopeRows) -> Result<Projected, LayerError> {
        let AttentionSizes { key_value_heads, head_dim, .. } = self.sizes;
        let shape = [k.shape()[0], key_value_heads, head_dim];
        let q = ops::rms_norm(q, Some(&self.q_norm), self.norm_offset, head_dim, self.eps)?;
        let k = ops::reshape(k, shape)?;
        let k = ops::rms_norm(&k, Some(&self.k_norm), self.norm_offset, head_dim, self.eps)?;
        let v = ops::reshape(v, shape)?;
        let (index_q, index_k) = self.indexer.project(index, rows)?;
        let rotate = |x: &Array| ops::rope(x, &rows.cos, &rows.sin);
        Ok(Projected { q: rotate(&q)?, k: rotate(&k)?, v, index_q, index_k })
    }

    /// Appends a segment's keys and attends from its queries: [L, H, D].
    fn attend(
        &self,
        projected: &Projected,
        segment: &Segment,
        cache: &mut AttentionCache,
        rope: &Rope,
    ) -> Result<Array, LayerError> {
        cache.keys.append(&segment.rows_of(&projected.k)?)?;
        cache.values.append(&segment.rows_of(&projected.v)?)?;
        self.indexer.append(&mut cache.index, &segment.rows_of(&projected.index_k)?, rope)?;
        // Rows before the budget is exceeded see everything. They take the plain path in every chunking, so that
        // their bits do not depend on which rows stand beside them.
        let parts = segment.split_at(self.indexer.sizes().first_selecting_position());
        let mut out = Vec::with_capacity(2);
        for (part, selects) in parts.iter().zip([false, true]).filter(|(part, _)| part.rows > 0) {
            out.push(self.attend_rows(projected, part, cache, selects)?);
        }
        Ok(ops::concatenate(&out.iter().collect::<Vec<_>>(), 0)?)
    }

    fn attend_rows(
        &self,
        projected: &Projected,
        rows: &Segment,
        cache: &AttentionCache,
        selects: bool,
    ) -> Result<Array, LayerError> {
        let position = rows.first_position;
        let ids = if selects {
            Some(self.indexer.select(&rows.rows_of(&projected.index_q)?, &cache.index, position)?)
        } else {
            None
        };
        let block = self.indexer.sizes().block;
        let selection = ids.as_ref().map(|ids| BlockSelection { ids, block });
        let scale = (self.sizes.head_dim as f32).sqrt().recip();
        let (keys, values) = (cache.keys.pages(), cache.values.pages());
        Ok(ops::attention(&rows.rows_of(&projected.q)?, keys, values, selection, position, scale)?)
    }
}
