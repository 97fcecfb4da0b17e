//! What a pass decided, for comparison with a reference: discrete, so it must be equal and not close.
//!
//! Only checks ask for it. A serving pass keeps none of this.

use ds4_array::Array;

/// The decisions of one layer for the tokens of one sequence.
#[derive(Debug, Default)]
pub struct LayerDecisions {
    /// Experts of each token, best first: [L, K] u32.
    pub routes: Option<Array>,
    /// In an attention layer with an indexer, the key blocks that each query selects.
    pub selection: Option<BlockSelection>,
    /// In a layer with an n-gram embedding, the table rows of each token, one per hash.
    pub ngram_rows: Option<Vec<u64>>,
}

/// Selected key blocks. A query also sees the tokens after its last complete block.
#[derive(Debug)]
pub struct BlockSelection {
    /// [L, top] u32, ascending, padded with `u32::MAX`.
    pub blocks: Array,
    /// Tokens in a block.
    pub block: usize,
}
