//! What a checkpoint of this family is and needs, without reading its weights.

use ds4_array::{DType, Stream};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::description::{
    self, LayerCount, Reading, bytes_by_type, count_layers, parameters_and_problems, unsupported_remarks,
};
use crate::registry::family_config;
use crate::{CacheSize, Description, LoadOptions, ModelError, SkippedPart};

use super::config::{Config, LayerType};
use super::{Model, is_draft, params, rename};

/// Describes a checkpoint of this family.
pub(crate) fn describe(
    checkpoint: &Checkpoint,
    files: &ModelFiles,
    config: Value,
) -> Result<Description, ModelError> {
    let (model_type, config) = family_config::<Config>(files, config)?;
    let options = LoadOptions::new(&Stream::new(&ds4_array::Device::reference()));
    let params = params(&options.stream, checkpoint).dry();
    Model::load(&params.root(), config.clone(), &options)?;
    let (parameters, problems) = parameters_and_problems(params);
    Ok(Description {
        family: "DeepSeek V4 Flash",
        model_type,
        layers: layer_counts(&config)?,
        sizes: sizes(&config),
        parameters,
        bytes_by_type: bytes_by_type(checkpoint),
        table_bytes: 0,
        vocabulary: config.vocab_size,
        max_context: config.max_position_embeddings,
        cache_size: cache_size(&config)?,
        skipped: skipped(checkpoint),
        remarks: remarks(checkpoint, &config),
        problems,
    })
}

/// Parts that have no place in the model.
pub(super) fn skipped(checkpoint: &Checkpoint) -> Vec<SkippedPart> {
    SkippedPart::draft_head(checkpoint, is_draft).into_iter().collect()
}

fn remarks(checkpoint: &Checkpoint, config: &Config) -> Vec<String> {
    let lacks_draft_head = config.num_nextn_predict_layers > 0 && skipped(checkpoint).is_empty();
    let missing = "the draft head (mtp.*) is missing: no speculative decoding with it";
    let missing = lacks_draft_head.then(|| missing.to_owned());
    missing.into_iter().chain(unsupported_remarks(checkpoint)).collect()
}

fn layer_counts(config: &Config) -> Result<Vec<LayerCount>, ModelError> {
    let kinds = config.layer_types()?;
    let count = |kind: LayerType| kinds.iter().filter(|&&k| k == kind).count();
    Ok(count_layers([
        ("sliding-window attention", count(LayerType::Sliding)),
        ("compressed sparse attention", count(LayerType::Sparse)),
        ("heavily compressed attention", count(LayerType::Heavy)),
        (
            "of these with hash-routed experts",
            config.hashed_layers()?.iter().filter(|&&hashed| hashed).count(),
        ),
    ]))
}

fn sizes(config: &Config) -> Vec<(&'static str, String)> {
    let (attention, moe) = (config.attention(), config.moe());
    let mut sizes = vec![
        ("vocabulary", config.vocab_size.to_string()),
        ("hidden", format!("{} in {} streams", config.hidden_size, config.hc_mult)),
        (
            "attention",
            format!("{} heads of {}, one for keys and values", attention.heads, attention.head_dim),
        ),
        ("window", format!("{} tokens", attention.span)),
    ];
    let runs = [LayerType::Sparse, LayerType::Heavy].map(|kind| config.compressor(kind));
    if let [Some(sparse), Some(heavy)] = runs {
        sizes.push(("entries", format!("of {} and of {} tokens", sparse.rate, heavy.rate)));
    }
    if let Some(index) = config.index(LayerType::Sparse) {
        let text = format!("{} heads of {}, {} entries", index.heads, index.head_dim, index.top);
        sizes.push(("indexer", text));
    }
    let experts =
        format!("{} of {}, {} per token, one shared", moe.experts, moe.inner, moe.experts_per_token);
    sizes.push(("experts", experts));
    sizes
}

fn cache_size(config: &Config) -> Result<CacheSize, ModelError> {
    let kinds = config.layer_types()?;
    let (mut fixed, mut growing) = (0, 0);
    for kind in kinds {
        fixed += config.sliding_window * config.head_dim;
        let Some(compressor) = config.compressor(kind) else { continue };
        let widths = [Some(config.head_dim), config.index(kind).map(|index| index.head_dim)];
        for width in widths.into_iter().flatten() {
            growing += width * 1024 / compressor.rate;
            // Values and gates of the incomplete run; where runs overlap, of two runs and twice as wide.
            let overlap = if compressor.overlaps { 2 } else { 1 };
            fixed += 2 * compressor.rate * overlap * width * overlap;
        }
    }
    let float = DType::F32.size();
    Ok(CacheSize { fixed: (fixed * float) as u64, per_1024: (growing * float) as u64 })
}

/// See [`LoadedModel::bytes_per_token`](crate::LoadedModel::bytes_per_token). The rows of hash tables are too few to count.
pub(super) fn bytes_per_token(checkpoint: &Checkpoint, config: &Config) -> u64 {
    let moe = config.moe();
    let reading =
        Reading { vocab: config.vocab_size, experts: moe.experts, experts_per_token: moe.experts_per_token };
    description::bytes_per_token(checkpoint, &reading, rename, |name| name.ends_with(".tid2eid"))
}
