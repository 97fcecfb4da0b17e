//! What stands at both ends of the layers, and the walk through them: the same in every family.

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, Stream};
use ds4_layers::{LayerCache, LayerError, Scope};

use crate::decisions::Watch;
use crate::{BatchSegment, LayerDecisions, ModelError};

/// The token embeddings and the head, each [vocab, hidden]; `tied` ones are the same, unless the checkpoint has a head.
pub(crate) fn embeddings_and_head(
    root: &Scope<'_>,
    vocab: usize,
    hidden: usize,
    tied: bool,
) -> (Weight, Weight) {
    let embed_tokens = root.weight("embed_tokens", vocab, hidden);
    let lm_head = if tied && !root.has_weight("lm_head") {
        embed_tokens.clone()
    } else {
        root.weight("lm_head", vocab, hidden)
    };
    (embed_tokens, lm_head)
}

/// The first residual streams [N, streams * D]: the embedding of each row's token in every stream.
pub(crate) fn embed(
    stream: &Stream,
    embed_tokens: &Weight,
    tokens: &[u32],
    streams: usize,
) -> Result<Array, ModelError> {
    let ids = Array::from_slice(stream, tokens, &[tokens.len()])?;
    let embedded = ops::gather_rows(embed_tokens, &ids)?;
    Ok(ops::concatenate(&vec![&embedded; streams], 1)?)
}

/// The residual streams `x` after all `layers`, each run by `forward` with the segments' caches of that layer. The batch's
/// tokens count as cached afterwards.
pub(crate) fn through_layers<L>(
    layers: &[L],
    mut x: Array,
    batch: &mut [BatchSegment<'_>],
    watch: Option<&Watch>,
    forward: impl Fn(&L, &Array, &mut [&mut LayerCache]) -> Result<Array, LayerError>,
) -> Result<Array, ModelError> {
    for (i, layer) in layers.iter().enumerate() {
        let caches = batch.iter_mut().filter_map(|segment| segment.cache.layers.get_mut(i));
        let mut caches: Vec<&mut LayerCache> = caches.collect();
        if let Some(watch) = watch {
            watch.borrow_mut().push(LayerDecisions::default());
        }
        x = forward(layer, &x, &mut caches)?;
    }
    for segment in batch {
        segment.cache.advance(segment.tokens.len());
    }
    Ok(x)
}

/// RMS norm over whole rows, with a weight that is not zero-centred.
pub(crate) fn row_norm(x: &Array, weight: &Array, eps: f32) -> Result<Array, LayerError> {
    Ok(ops::rms_norm(x, Some(weight), 0.0, x.shape().width(), eps)?)
}
