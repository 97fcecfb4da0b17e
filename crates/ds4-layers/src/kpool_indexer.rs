//! The indexer of GLM's sparse attention: DSA (DeepSeek sparse attention) over pools of tokens. It scores the pooled keys of
//! complete pools for each query and keeps the best; the tokens behind the last complete pool are always seen.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::cache::IndexCache;
use crate::{IndexerSizes, LayerError, Scope, Segment};

/// Epsilon of the norm of keys, as in the reference.
const KEY_NORM_EPS: f32 = 1e-6;

/// The indexer of one attention layer.
pub struct KPoolIndexer {
    wq_b: Weight,
    wk: Weight,
    k_norm: Array,
    k_norm_bias: Array,
    weights_proj: Weight,
    compress_gate: Weight,
    /// [block, D]: what is added to the gates, by place in the pool.
    compress_ape: Array,
    sizes: IndexerSizes,
}

/// What the indexer computes for the rows of a batch.
pub(crate) struct IndexRows {
    /// Queries [N, H, D].
    q: Array,
    /// How much each head counts, [N, H].
    weights: Array,
    /// Keys and gates side by side, [N, 2 * D].
    raw: Array,
}

impl KPoolIndexer {
    /// Loads the tensors below `scope`. Queries are made from latents of `query_rank`.
    pub fn load(scope: &Scope<'_>, hidden: usize, query_rank: usize, sizes: IndexerSizes) -> Self {
        let IndexerSizes { heads, head_dim, block, .. } = sizes;
        Self {
            wq_b: scope.weight("wq_b", heads * head_dim, query_rank),
            wk: scope.weight("wk", head_dim, hidden),
            k_norm: scope.array("k_norm.weight", &[head_dim]),
            k_norm_bias: scope.map_f32("k_norm.bias", &[head_dim], |x| x),
            weights_proj: scope.weight("weights_proj", heads, hidden),
            compress_gate: scope.weight("index_kpool_compress_gate", head_dim, hidden),
            compress_ape: scope.map_f32("index_kpool_compress_ape", &[block, head_dim], |x| x),
            sizes,
        }
    }

    /// Its cache before the first token.
    pub fn new_cache(&self) -> IndexCache {
        let IndexerSizes { head_dim, block, .. } = self.sizes;
        IndexCache::new(self.k_norm.stream(), block, head_dim, 2 * head_dim)
    }

    /// What the rows `x` [N, hidden] with the query latents `q_latent` [N, query_rank] bring along.
    pub(crate) fn project(&self, x: &Array, q_latent: &Array) -> Result<IndexRows, LayerError> {
        let IndexerSizes { heads, head_dim, .. } = self.sizes;
        let q = ops::reshape(&ops::linear(q_latent, &self.wq_b)?, [x.shape()[0], heads, head_dim])?;
        let [keys, gates] = ops::linears(x, [&self.wk, &self.compress_gate])?;
        // Layer norm: without its mean, the norm of a row is a root mean square.
        let centred = ops::sub(&keys, &ops::mean(&keys)?)?;
        let normed = ops::rms_norm(&centred, Some(&self.k_norm), 0.0, head_dim, KEY_NORM_EPS)?;
        let keys = ops::add(&normed, &self.k_norm_bias)?;
        let weights = ops::linear(x, &self.weights_proj)?;
        Ok(IndexRows { q, weights, raw: ops::concatenate(&[&keys, &gates], 1)? })
    }

    /// Adds a segment's rows to its sequence's index. A pool's key is the mean of its tokens' keys, weighted in each channel
    /// by a softmax over the pool.
    pub(crate) fn append(
        &self,
        cache: &mut IndexCache,
        rows: &IndexRows,
        segment: &Segment,
    ) -> Result<(), LayerError> {
        let IndexerSizes { head_dim, block, .. } = self.sizes;
        let Some(pools) = cache.push(&segment.rows_of(&rows.raw)?)? else { return Ok(()) };
        let (count, wide) = (pools.shape()[0], block * head_dim);
        let keys = ops::slice_columns(&pools, 0, head_dim)?;
        let gates = ops::reshape(&ops::slice_columns(&pools, head_dim, head_dim)?, [count, wide])?;
        let gates = ops::add(&gates, &ops::reshape(&self.compress_ape, [wide])?)?;
        let gates = ops::reshape(&gates, [count, block, head_dim])?;
        cache.pooled.append(&ops::gated_pool(&keys, &gates)?)
    }

    /// The selected pools of the queries of `segment`, [L, top] u32 as [`ops::index_select`] gives them.
    pub(crate) fn select(
        &self,
        cache: &IndexCache,
        rows: &IndexRows,
        segment: &Segment,
    ) -> Result<Array, LayerError> {
        let IndexerSizes { heads, head_dim, block, .. } = self.sizes;
        let (q, weights) = (segment.rows_of(&rows.q)?, segment.rows_of(&rows.weights)?);
        let scale = ((heads * head_dim) as f32).sqrt().recip();
        let (keys, top) = (cache.pooled.pages(), self.sizes.top());
        Ok(ops::index_select(&q, Some(&weights), keys, segment.first_position, block, top, scale)?)
    }
}
