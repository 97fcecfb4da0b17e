//! The indexer of QSA (query-selected attention): scores blocks of keys for each query and keeps the best.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::cache::IndexCache;
use crate::{LayerError, Rope, RopeRows, Scope};

/// Sizes of an indexer.
#[derive(Clone, Copy, Debug)]
pub struct IndexerSizes {
    /// Query heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Tokens that may be selected, besides the tail.
    pub budget: usize,
    /// Tokens in a block.
    pub block: usize,
}

impl IndexerSizes {
    /// Blocks that may be selected.
    pub fn top(&self) -> usize {
        self.budget / self.block
    }

    /// The first position whose query has more complete blocks than may be selected. Before it every block is visible,
    /// and attention is plain causal attention.
    pub fn first_selecting_position(&self) -> usize {
        (self.top() + 1) * self.block - 1
    }
}

/// The indexer of one attention layer.
pub struct QsaIndexer {
    index_qk_proj: Weight,
    q_layernorm: Array,
    k_layernorm: Array,
    sizes: IndexerSizes,
    norm_offset: f32,
    eps: f32,
}

impl QsaIndexer {
    /// Loads the tensors below `scope`.
    pub fn load(scope: &Scope<'_>, hidden: usize, sizes: IndexerSizes, norm_offset: f32, eps: f32) -> Self {
        let IndexerSizes { heads, head_dim, .. } = sizes;
        Self {
            index_qk_proj: scope.weight("index_qk_proj", (heads + 1) * head_dim, hidden),
            q_layernorm: scope.array("q_layernorm.weight", &[head_dim]),
            k_layernorm: scope.array("k_layernorm.weight", &[head_dim]),
            sizes,
            norm_offset,
            eps,
        }
    }

    /// Its sizes.
    pub fn sizes(&self) -> &IndexerSizes {
        &self.sizes
    }

    /// What rows [N, hidden] are multiplied with.
    pub fn projection(&self) -> &Weight {
        &self.index_qk_proj
    }

    /// Queries [N, H, D], rotated, and raw keys [N, D] out of the projection of rows, `both` [N, (H + 1) * D].
    pub fn project(&self, both: &Array, rope: &RopeRows) -> Result<(Array, Array), LayerError> {
        let IndexerSizes { heads, head_dim, .. } = self.sizes;
        let q = ops::slice_columns(both, 0, heads * head_dim)?;
        let q = ops::reshape(&q, [both.shape()[0], heads, head_dim])?;
        let q = ops::rms_norm(&q, Some(&self.q_layernorm), self.norm_offset, head_dim, self.eps)?;
        let keys = ops::slice_columns(both, heads * head_dim, head_dim)?;
        Ok((ops::rope(&q, &rope.cos, &rope.sin)?, keys))
    }

    /// Adds raw keys of one sequence to its index. A block's key is the mean of its tokens' keys, normed, and rotated
    /// to the position of its first token.
    pub fn append(&self, cache: &mut IndexCache, keys: &Array, rope: &Rope) -> Result<(), LayerError> {
        let IndexerSizes { head_dim, block, .. } = self.sizes;
        let Some(blocks) = cache.push(keys)? else { return Ok(()) };
        let means = ops::mean_middle(&blocks)?;
        let (first, count) = (cache.pooled.len(), means.shape()[0]);
        let normed = ops::rms_norm(&means, Some(&self.k_layernorm), self.norm_offset, head_dim, self.eps)?;
        let angles = rope.rows((0..count).map(|i| (first + i) * block))?;
        let rotated = ops::rope(&ops::reshape(&normed, [count, 1, head_dim])?, &angles.cos, &angles.sin)?;
        cache.pooled.append(&ops::reshape(&rotated, [count, head_dim])?)
    }

    /// The selected blocks of each query, [L, top] u32 as [`ops::index_select`] gives them.
    pub fn select(&self, q: &Array, cache: &IndexCache, first_position: usize) -> Result<Array, LayerError> {
        let IndexerSizes { head_dim, block, .. } = self.sizes;
        let scale = (head_dim as f32).sqrt().recip();
        let (keys, top) = (cache.pooled.pages(), self.sizes.top());
        Ok(ops::index_select(q, None, keys, first_position, block, top, scale)?)
    }
}
