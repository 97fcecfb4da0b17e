//! What a checkpoint of this family is and needs, without reading its weights.

use ds4_array::{DType, Stream};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::description::{
    self, LayerCount, Reading, bytes_by_type, count_layers, parameters_and_problems, unsupported_remarks,
};
use crate::names::is_row_table;
use crate::registry::family_config;
use crate::{CacheSize, Description, LoadOptions, ModelError, SkippedPart};

use super::config::{Config, LayerType};
use super::{Layout, Model, params, rename};

/// Describes a checkpoint of this family.
pub(crate) fn describe(
    checkpoint: &Checkpoint,
    files: &ModelFiles,
    config: Value,
) -> Result<Description, ModelError> {
    let (model_type, config) = family_config::<Config>(files, config)?;
    let options = LoadOptions::new(&Stream::new(&ds4_array::Device::reference()));
    let params = params(&options.stream, checkpoint, &config).dry();
    let model = Model::load(&params.root(), config.clone(), Layout::of(checkpoint), &options)?;
    let has_draft_head = model.mtp.is_some();
    let mut remarks: Vec<String> = unsupported_remarks(checkpoint).collect();
    if config.draft_layers() > 0 && !has_draft_head {
        remarks.push("the draft head (mtp.*) is missing: no speculative decoding with it".to_owned());
    }
    let (parameters, problems) = parameters_and_problems(params);
    let table = |tensor: &&ds4_weights::Tensor| is_row_table(&tensor.name);
    Ok(Description {
        family: "Qwen3.8 Flash Next",
        model_type,
        layers: layer_counts(&config, has_draft_head)?,
        sizes: sizes(&config),
        parameters,
        bytes_by_type: bytes_by_type(checkpoint),
        table_bytes: checkpoint.tensors().filter(table).map(|t| t.bytes.as_ref().len() as u64).sum(),
        vocabulary: config.vocab_size,
        max_context: config.max_position_embeddings,
        cache_size: cache_size(&config)?,
        skipped: SkippedPart::vision(checkpoint).into_iter().collect(),
        remarks,
        problems,
    })
}

fn layer_counts(config: &Config, has_draft_head: bool) -> Result<Vec<LayerCount>, ModelError> {
    let kinds = config.layer_types()?;
    let count = |kind: LayerType| kinds.iter().filter(|&&k| k == kind).count();
    Ok(count_layers([
        ("gated delta net", count(LayerType::Linear)),
        ("indexed attention", count(LayerType::Attention)),
        ("of these with n-gram embedding", config.embedding_layers().count()),
        ("draft head", usize::from(has_draft_head)),
    ]))
}

fn sizes(config: &Config) -> Vec<(&'static str, String)> {
    let (attention, delta, moe, indexer) =
        (config.attention(), config.delta(), config.moe(), config.indexer());
    vec![
        ("vocabulary", config.vocab_size.to_string()),
        ("hidden", format!("{} in {} streams", config.hidden_size, config.hc_count)),
        (
            "attention",
            format!(
                "{} heads of {}, {} for keys",
                attention.heads, attention.head_dim, attention.key_value_heads
            ),
        ),
        ("indexer", format!("{} tokens in blocks of {}", indexer.budget, indexer.block)),
        (
            "delta net",
            format!(
                "{} key heads of {}, {} value heads of {}",
                delta.key_heads, delta.key_dim, delta.value_heads, delta.value_dim
            ),
        ),
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
    let (delta, attention, indexer) = (config.delta(), config.attention(), config.indexer());
    let float = DType::F32.size();
    let conv = (delta.conv_kernel - 1) * delta.channels();
    let recurrent = conv + delta.value_heads * delta.key_dim * delta.value_dim;
    let per_token = 2 * attention.key_value_heads * attention.head_dim * float;
    let growing = per_token * 1024 + indexer.head_dim * float * 1024 / indexer.block.max(1);
    let kinds = config.layer_types()?;
    let count = |kind| kinds.iter().filter(|&&k| k == kind).count();
    let embedding =
        (config.ple_conv_kernel_size - 1) * config.ngram(0).ngram * config.hc_count * config.hidden_size;
    let fixed = count(LayerType::Linear) * recurrent + config.embedding_layers().count() * embedding;
    let per_1024 = (count(LayerType::Attention) * growing) as u64;
    Ok(CacheSize { fixed: (fixed * float) as u64, per_1024 })
}

/// See [`LoadedModel::bytes_per_token`](crate::LoadedModel::bytes_per_token). The rows of n-gram tables, one embedding a
/// layer, are too few to count.
pub(super) fn bytes_per_token(checkpoint: &Checkpoint, config: &Config) -> u64 {
    let moe = config.moe();
    let reading =
        Reading { vocab: config.vocab_size, experts: moe.experts, experts_per_token: moe.experts_per_token };
    let own_name = |name: &str| rename(name, config.embedding_layers().next());
    let untouched = |name: &str| name.starts_with("mtp.") || name.contains(".ngram_embedding.");
    description::bytes_per_token(checkpoint, &reading, own_name, untouched)
}
