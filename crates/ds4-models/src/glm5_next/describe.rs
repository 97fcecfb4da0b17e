//! What a checkpoint of this family is and needs, without reading its weights.

use ds4_array::{DType, Stream};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::description::{
    self, LayerCount, Reading, bytes_by_type, count_layers, parameters_and_problems, unsupported_remarks,
};
use crate::names::is_vision;
use crate::registry::family_config;
use crate::{CacheSize, Description, LoadOptions, ModelError, SkippedPart};

use super::config::{Config, LayerType};
use super::{Model, params, rename};

/// Describes a checkpoint of this family.
pub(crate) fn describe(
    checkpoint: &Checkpoint,
    files: &ModelFiles,
    config: Value,
) -> Result<Description, ModelError> {
    let (model_type, config) = family_config::<Config>(files, config)?;
    let options = LoadOptions::new(&Stream::new(&ds4_array::Device::reference()));
    let params = params(&options.stream, checkpoint, &config).dry();
    Model::load(&params.root(), config.clone(), &options)?;
    let (parameters, problems) = parameters_and_problems(params);
    Ok(Description {
        family: "GLM 5.3 Flash",
        model_type,
        layers: layer_counts(&config)?,
        sizes: sizes(&config),
        parameters,
        bytes_by_type: bytes_by_type(checkpoint),
        table_bytes: 0,
        vocabulary: config.vocab_size,
        max_context: config.max_position_embeddings,
        cache_size: cache_size(&config)?,
        skipped: skipped(checkpoint, &config),
        remarks: unsupported_remarks(checkpoint).collect(),
        problems,
    })
}

/// Parts that have no place in the model.
pub(super) fn skipped(checkpoint: &Checkpoint, config: &Config) -> Vec<SkippedPart> {
    let is_draft = |name: &str| rename(name, config.num_hidden_layers).is_none() && !is_vision(name);
    let parts = [SkippedPart::vision(checkpoint), SkippedPart::draft_head(checkpoint, is_draft)];
    parts.into_iter().flatten().collect()
}

fn layer_counts(config: &Config) -> Result<Vec<LayerCount>, ModelError> {
    let kinds = config.layer_types()?;
    let count = |wanted: &dyn Fn(LayerType) -> bool| kinds.iter().filter(|&&kind| wanted(kind)).count();
    let sparse = config.sparse_layers()?.into_iter().filter(|&sparse| sparse).count();
    Ok(count_layers([
        ("Kimi delta attention", count(&|kind| kind == LayerType::Linear)),
        ("latent attention", count(&|kind| matches!(kind, LayerType::Attention { .. }))),
        (
            "of these with another layer's selection",
            count(&|kind| matches!(kind, LayerType::Attention { own_indexer: false })),
        ),
        ("mixture of experts", sparse),
        ("dense network", kinds.len() - sparse),
    ]))
}

fn sizes(config: &Config) -> Vec<(&'static str, String)> {
    let (attention, delta, moe, pools) = (config.attention(), config.delta(), config.moe(), config.indexer());
    vec![
        ("vocabulary", config.vocab_size.to_string()),
        ("hidden", format!("{} in {} streams", config.hidden_size, config.hc_mult)),
        (
            "attention",
            format!(
                "{} heads of {}, latents of {}",
                attention.heads, attention.key_dim, attention.latent_rank
            ),
        ),
        ("indexer", format!("{} tokens in pools of {}", pools.budget, pools.block)),
        ("delta net", format!("{} heads of {}", delta.heads, delta.head_dim)),
        (
            "experts",
            format!(
                "{} of {}, {} per token, shared {}",
                moe.experts, moe.inner, moe.experts_per_token, moe.shared_inner
            ),
        ),
    ]
}

fn cache_size(config: &Config) -> Result<CacheSize, ModelError> {
    let (delta, pools) = (config.delta(), config.indexer());
    let (mut fixed, mut growing) = (0, 0);
    for kind in config.layer_types()? {
        match kind {
            LayerType::Linear => {
                fixed += delta.channels() * (3 * (delta.conv_kernel - 1) + delta.head_dim);
            }
            LayerType::Attention { own_indexer } => {
                growing += config.attention().latent_rank * 1024;
                if own_indexer {
                    growing += pools.head_dim * 1024 / pools.block;
                    // Keys and gates of the incomplete pool.
                    fixed += 2 * pools.head_dim * (pools.block - 1);
                }
            }
        }
    }
    let float = DType::F32.size();
    Ok(CacheSize { fixed: (fixed * float) as u64, per_1024: (growing * float) as u64 })
}

/// See [`LoadedModel::bytes_per_token`](crate::LoadedModel::bytes_per_token).
pub(super) fn bytes_per_token(checkpoint: &Checkpoint, config: &Config) -> u64 {
    let moe = config.moe();
    let reading =
        Reading { vocab: config.vocab_size, experts: moe.experts, experts_per_token: moe.experts_per_token };
    let own_name = |name: &str| rename(name, config.num_hidden_layers);
    description::bytes_per_token(checkpoint, &reading, own_name, |_| false)
}
