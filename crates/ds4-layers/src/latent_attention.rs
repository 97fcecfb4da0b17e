//! Multi-head latent attention without position encoding, over the pools of tokens that an indexer selects.
//!
//! Only a latent is cached for each token; every head's key and value are linear functions of it. They are never made:
//! a query is taken back through its head's key matrix and compared with the latents themselves, and the weighted sum of
//! latents is taken through the value matrix afterwards ("absorbed" form; source: DeepSeek-AI, "DeepSeek-V2"). That is
//! what makes decoding cheap. Prefill uses it too, although keys and values made once for many queries would save it some
//! multiplications: two forms would round differently, and a row must not depend on how many rows stand beside it.

use ds4_array::Array;
use ds4_array::ops::{self, BlockSelection, HeadRows, Weight};

use crate::cache::LatentCache;
use crate::kpool_indexer::IndexRows;
use crate::{IndexerSizes, KPoolIndexer, LayerError, Scope, Segment, per_segment};

/// Sizes of the layer.
#[derive(Clone, Copy, Debug)]
pub struct LatentSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of the latents that queries are made from.
    pub query_rank: usize,
    /// Width of the latents that keys and values are made from, and that are cached.
    pub latent_rank: usize,
    /// Width of a query or key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

/// The last selection of each segment of a batch, for layers without an indexer of their own: the pools of its rows from
/// the first selecting position on, [L', top] u32. `None` if it has no such rows.
pub type Selections = Vec<Option<Array>>;

/// The layer.
pub struct LatentAttention {
    q_a_proj: Weight,
    q_a_layernorm: Array,
    q_b_proj: Weight,
    kv_a_proj: Weight,
    kv_a_layernorm: Array,
    /// For each head the rows of its key matrix, then those of its value matrix.
    kv_b_proj: Weight,
    o_proj: Weight,
    indexer: Option<KPoolIndexer>,
    sizes: LatentSizes,
    pools: IndexerSizes,
    eps: f32,
}

impl LatentAttention {
    /// Loads the tensors below `scope`. Without `own_indexer` the layer uses the selection of the one before it.
    pub fn load(
        scope: &Scope<'_>,
        sizes: LatentSizes,
        pools: IndexerSizes,
        own_indexer: bool,
        eps: f32,
    ) -> Self {
        let LatentSizes { hidden, heads, query_rank, latent_rank, key_dim, value_dim } = sizes;
        let indexer = || KPoolIndexer::load(&scope.at("indexer"), hidden, query_rank, pools);
        Self {
            q_a_proj: scope.weight("q_a_proj", query_rank, hidden),
            q_a_layernorm: scope.array("q_a_layernorm.weight", &[query_rank]),
            q_b_proj: scope.weight("q_b_proj", heads * key_dim, query_rank),
            kv_a_proj: scope.weight("kv_a_proj_with_mqa", latent_rank, hidden),
            kv_a_layernorm: scope.array("kv_a_layernorm.weight", &[latent_rank]),
            kv_b_proj: scope.weight("kv_b_proj", heads * (key_dim + value_dim), latent_rank),
            o_proj: scope.weight("o_proj", hidden, heads * value_dim),
            indexer: own_indexer.then(indexer),
            sizes,
            pools,
            eps,
        }
    }

    /// Its cache before the first token, with latents stored as `dtype`.
    pub fn new_cache(&self, dtype: ds4_array::DType) -> LatentCache {
        let index = self.indexer.as_ref().map(KPoolIndexer::new_cache);
        LatentCache::new(self.q_a_layernorm.stream(), self.sizes.latent_rank, dtype, index)
    }

    /// `x` [N, H] through the layer; each segment continues its cache. A layer with an indexer replaces `selections`, one
    /// without uses them.
    pub fn forward(
        &self,
        x: &Array,
        segments: &[Segment],
        caches: &mut [&mut LatentCache],
        selections: &mut Selections,
    ) -> Result<Array, LayerError> {
        let LatentSizes { heads, latent_rank, key_dim, value_dim, .. } = self.sizes;
        let rows = x.shape()[0];
        let matrices = |first, rows| HeadRows { stride: key_dim + value_dim, first, rows };
        let q_latent = self.query_latent(x)?;
        let q = ops::reshape(&ops::linear(&q_latent, &self.q_b_proj)?, [rows, heads, key_dim])?;
        let q = ops::head_linear_transposed(&q, &self.kv_b_proj, matrices(0, key_dim))?;
        let latents = ops::linear(x, &self.kv_a_proj)?;
        let latents = ops::rms_norm(&latents, Some(&self.kv_a_layernorm), 0.0, latent_rank, self.eps)?;
        let latents = ops::reshape(&latents, [rows, 1, latent_rank])?;
        let index = self.indexer.as_ref().map(|indexer| indexer.project(x, &q_latent)).transpose()?;
        selections.resize(segments.len(), None);
        let out = per_segment(segments, |i, segment| {
            let cache = &mut *caches[i];
            cache.latents.append(&segment.rows_of(&latents)?)?;
            self.index(cache, index.as_ref(), segment, &mut selections[i])?;
            self.attend(&q, cache, segment, selections[i].as_ref())
        })?;
        let values = ops::head_linear(&out, &self.kv_b_proj, matrices(key_dim, value_dim))?;
        Ok(ops::linear(&ops::reshape(&values, [rows, heads * value_dim])?, &self.o_proj)?)
    }

    /// The pools that each of the rows `x` of a sequence selects, [L, top] u32, if the layer has an indexer. For checks:
    /// the rows must be in `cache` already.
    pub fn selected_pools(
        &self,
        x: &Array,
        cache: &LatentCache,
        first_position: usize,
    ) -> Result<Option<Array>, LayerError> {
        let (Some(indexer), Some(index)) = (&self.indexer, &cache.index) else { return Ok(None) };
        let rows = indexer.project(x, &self.query_latent(x)?)?;
        let all = Segment { first_row: 0, rows: x.shape()[0], first_position };
        Ok(Some(indexer.select(index, &rows, &all)?))
    }

    fn query_latent(&self, x: &Array) -> Result<Array, LayerError> {
        let latent = ops::linear(x, &self.q_a_proj)?;
        Ok(ops::rms_norm(&latent, Some(&self.q_a_layernorm), 0.0, self.sizes.query_rank, self.eps)?)
    }

    /// Appends a segment's keys to the index and selects for its rows.
    fn index(
        &self,
        cache: &mut LatentCache,
        rows: Option<&IndexRows>,
        segment: &Segment,
        selection: &mut Option<Array>,
    ) -> Result<(), LayerError> {
        let (Some(indexer), Some(rows), Some(index)) = (&self.indexer, rows, &mut cache.index) else {
            return Ok(());
        };
        indexer.append(index, rows, segment)?;
        let [_, selecting] = segment.split_at(self.pools.first_selecting_position());
        *selection = if selecting.rows > 0 { Some(indexer.select(index, rows, &selecting)?) } else { None };
        Ok(())
    }

    /// Attends from a segment's queries to its sequence's latents: [L, H, R]. Rows before the budget is exceeded see
    /// everything and take the plain path in every chunking.
    fn attend(
        &self,
        q: &Array,
        cache: &LatentCache,
        segment: &Segment,
        selection: Option<&Array>,
    ) -> Result<Array, LayerError> {
        let scale = (self.sizes.key_dim as f32).sqrt().recip();
        let block = self.pools.block;
        let [plain, selecting] = segment.split_at(self.pools.first_selecting_position());
        let selection = selection.map(|ids| BlockSelection { ids, block });
        let mut out = Vec::with_capacity(2);
        for (part, selection) in [(plain, None), (selecting, selection)] {
            if part.rows > 0 {
                let (q, latents) = (part.rows_of(q)?, cache.latents.pages());
                out.push(ops::attention(&q, latents, latents, selection, part.first_position, scale)?);
            }
        }
        Ok(ops::concatenate(&out.iter().collect::<Vec<_>>(), 0)?)
    }
}
