//! What a pass decided, for comparison with a reference: discrete, so it must be equal and not close.
//!
//! Only checks ask for it. A serving pass keeps none of this.

use std::cell::RefCell;

use ds4_array::Array;
use ds4_layers::LayerError;

use crate::{BatchSegment, CausalLm, LogitRows, ModelError};

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

/// Where a pass notes its decisions, the layer that runs last. A watched batch is one sequence.
pub(crate) type Watch = RefCell<Vec<LayerDecisions>>;

/// Notes decisions of the layer that runs, if somebody watches.
pub(crate) fn note(
    watch: Option<&Watch>,
    note: impl FnOnce(&mut LayerDecisions) -> Result<(), LayerError>,
) -> Result<(), LayerError> {
    match watch.map(RefCell::borrow_mut).as_mut().and_then(|layers| layers.last_mut()) {
        Some(decisions) => note(decisions),
        None => Ok(()),
    }
}

/// The decisions of one pass, `run`, of `model` over `tokens` of a new sequence.
pub(crate) fn watched<T>(
    model: &impl CausalLm,
    tokens: &[u32],
    run: impl FnOnce(&mut [BatchSegment<'_>], Option<&Watch>) -> Result<T, ModelError>,
) -> Result<Vec<LayerDecisions>, ModelError> {
    let (mut cache, seen) = (model.new_cache(), Watch::default());
    run(&mut [BatchSegment { tokens, cache: &mut cache, logits: LogitRows::None }], Some(&seen))?;
    Ok(seen.into_inner())
}
