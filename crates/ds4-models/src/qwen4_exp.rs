//! Qwen3.8 Flash Next (`qwen4_exp`): gated delta nets and indexed attention under hyper-connections, with hashed n-gram
//! embeddings in a few layers and a mixture of experts in each.
//!
//! Read bottom-up: configuration, per-layer embedding, layer, model, names. The draft head is in `mtp.rs`; pictures are
//! not supported.

mod config;
mod mtp;
mod per_layer_embedding;

use std::cell::RefCell;

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, DType, Stream};
use ds4_layers::{
    AttentionCache, DeltaCache, GatedDeltaNet, GatedResidual, IndexCache, IndexedAttention, LayerCache,
    LayerError, Params, Rope, RopeRows, RowTail, Scope, Segment, SequenceCache, SparseMoe,
};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::batch::{positions_of, segments_of, wanted_rows};
use crate::description::{LayerCount, bytes_by_type};
use crate::registry::text_config;
use crate::{
    BatchSegment, BlockSelection, CausalLm, Description, DraftHead, Forward, LayerDecisions, LoadOptions,
    LoadedModel, LogitRows, ModelError, SamplerRule,
};

use config::{Config, LayerType};
use mtp::MtpWeights;
use per_layer_embedding::PerLayerEmbedding;

/// How the weights of norms are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Released and transformers checkpoints: zero-centred, the norm multiplies with 1 + w.
    ZeroCentred,
    /// Checkpoints converted for MLX: 1 is added already, and convolutions are [C, K, 1].
    Shifted,
}

impl Layout {
    fn of(checkpoint: &Checkpoint) -> Self {
        let mut convolutions =
            checkpoint.tensors().filter(|tensor| tensor.name.ends_with("linear_attn.conv1d.weight"));
        let shifted = convolutions.any(|tensor| tensor.shape.len() == 3 && tensor.shape[1] != 1);
        if shifted { Self::Shifted } else { Self::ZeroCentred }
    }

    fn norm_offset(self) -> f32 {
        match self {
            Self::ZeroCentred => 1.0,
            Self::Shifted => 0.0,
        }
    }
}

/// The token mixer of a layer.
enum Mixer {
    Linear(GatedDeltaNet),
    Attention(IndexedAttention),
}

/// One transformer block.
struct DecoderLayer {
    ple: Option<PerLayerEmbedding>,
    attn_hyper_connection: GatedResidual,
    mixer: Mixer,
    mlp_hyper_connection: GatedResidual,
    mlp: SparseMoe,
}

/// What all layers of a pass share.
struct Pass<'a> {
    segments: &'a [Segment],
    tokens: &'a [&'a [u32]],
    rope: &'a Rope,
    angles: &'a RopeRows,
    /// Where decisions are noted, if somebody checks them; then the batch is one sequence.
    watch: Option<&'a RefCell<Vec<LayerDecisions>>>,
}

impl Pass<'_> {
    /// Notes decisions of the layer that runs.
    fn note(
        &self,
        note: impl FnOnce(&mut LayerDecisions) -> Result<(), LayerError>,
    ) -> Result<(), LayerError> {
        match self.watch.map(|watch| watch.borrow_mut()).as_mut().and_then(|layers| layers.last_mut()) {
            Some(decisions) => note(decisions),
            None => Ok(()),
        }
    }
}

impl DecoderLayer {
    fn load(
        scope: &Scope<'_>,
        config: &Config,
        kind: LayerType,
        embedding: Option<usize>,
        offset: f32,
    ) -> Self {
        let eps = config.rms_norm_eps;
        let connection = |name: &str| {
            let sizes = [config.hc_count, config.hidden_size, config.hc_lowrank];
            GatedResidual::load(&scope.at(name), sizes, offset, eps, true)
        };
        let mixer = match kind {
            LayerType::Linear => Mixer::Linear(GatedDeltaNet::load(
                &scope.at("linear_attn"),
                config.delta(),
                config.gate_activation(),
                eps,
            )),
            LayerType::Attention => Mixer::Attention(IndexedAttention::load(
                &scope.at("self_attn"),
                config.attention(),
                config.indexer(),
                offset,
                eps,
            )),
        };
        Self {
            ple: embedding.map(|index| PerLayerEmbedding::load(&scope.at("ple"), config, index, offset)),
            attn_hyper_connection: connection("attn_hyper_connection"),
            mixer,
            mlp_hyper_connection: connection("mlp_hyper_connection"),
            mlp: SparseMoe::load(&scope.at("mlp"), config.moe()),
        }
    }

    /// `x` [N, S * D] through the layer.
    fn forward(
        &self,
        x: &Array,
        pass: &Pass<'_>,
        caches: &mut [&mut LayerCache],
    ) -> Result<Array, LayerError> {
        pass.note(|seen| {
            seen.ngram_rows = self.ple.as_ref().and_then(|ple| ple.row_ids(caches[0], pass.tokens[0]));
            Ok(())
        })?;
        let x = match &self.ple {
            Some(ple) => ple.forward(x, pass.segments, pass.tokens, caches)?,
            None => x.clone(),
        };
        let (input, normed) = self.attn_hyper_connection.read(&x)?;
        let mixed = match &self.mixer {
            Mixer::Linear(layer) => {
                let mut caches: Vec<&mut DeltaCache> =
                    caches.iter_mut().filter_map(|cache| delta(cache)).collect();
                layer.forward(&input, pass.segments, &mut caches)?
            }
            Mixer::Attention(layer) => {
                let mut caches: Vec<&mut AttentionCache> =
                    caches.iter_mut().filter_map(|cache| attention(cache)).collect();
                let mixed = layer.forward(&input, pass.segments, &mut caches, pass.rope, pass.angles)?;
                pass.note(|seen| {
                    let position = pass.segments[0].first_position;
                    let (blocks, block) = layer.selected_blocks(&input, caches[0], pass.angles, position)?;
                    seen.selection = Some(BlockSelection { blocks, block });
                    Ok(())
                })?;
                mixed
            }
        };
        let x = self.attn_hyper_connection.write(&x, &normed, &mixed)?;
        let (input, normed) = self.mlp_hyper_connection.read(&x)?;
        pass.note(|seen| {
            seen.routes = Some(self.mlp.route(&input)?.0);
            Ok(())
        })?;
        self.mlp_hyper_connection.write(&x, &normed, &self.mlp.forward(&input)?)
    }

    fn new_cache(&self, config: &Config, options: &LoadOptions) -> LayerCache {
        let stream = &options.stream;
        match &self.mixer {
            Mixer::Linear(_) => {
                let sizes = config.delta();
                let conv = RowTail::new(stream, sizes.conv_kernel - 1, sizes.channels());
                let matrices = [sizes.value_heads, sizes.key_dim, sizes.value_dim];
                let embedding = self.ple.as_ref().map(PerLayerEmbedding::new_cache);
                LayerCache::Delta(DeltaCache::new(stream, conv, matrices, embedding))
            }
            Mixer::Attention(_) => attention_cache(config, options),
        }
    }
}

fn attention_cache(config: &Config, options: &LoadOptions) -> LayerCache {
    let (sizes, indexer) = (config.attention(), config.indexer());
    let index = IndexCache::new(&options.stream, indexer.block, indexer.head_dim, indexer.head_dim);
    let (heads, dim) = (sizes.key_value_heads, sizes.head_dim);
    LayerCache::Attention(AttentionCache::new(&options.stream, heads, dim, options.key_value_dtype, index))
}

fn delta<'a>(cache: &'a mut &mut LayerCache) -> Option<&'a mut DeltaCache> {
    match &mut **cache {
        LayerCache::Delta(cache) => Some(cache),
        _ => None,
    }
}

fn attention<'a>(cache: &'a mut &mut LayerCache) -> Option<&'a mut AttentionCache> {
    match &mut **cache {
        LayerCache::Attention(cache) => Some(cache),
        _ => None,
    }
}

/// The whole model.
struct Model {
    config: Config,
    options: LoadOptions,
    embed_tokens: Weight,
    layers: Vec<DecoderLayer>,
    hyper_connection_mixer: GatedResidual,
    lm_head: Weight,
    rope: Rope,
    mtp: Option<MtpWeights>,
}

impl Model {
    fn load(
        root: &Scope<'_>,
        config: Config,
        layout: Layout,
        options: &LoadOptions,
    ) -> Result<Self, ModelError> {
        let offset = layout.norm_offset();
        let kinds = config.layer_types()?;
        let layer = |(i, kind): (usize, &LayerType)| {
            DecoderLayer::load(
                &root.at(format!("layers.{i}")),
                &config,
                *kind,
                config.embedding_of(i),
                offset,
            )
        };
        let layers = kinds.iter().enumerate().map(layer).collect();
        let embed_tokens = root.weight("embed_tokens", config.vocab_size, config.hidden_size);
        let lm_head = if config.tie_word_embeddings && !root.has_weight("lm_head") {
            embed_tokens.clone()
        } else {
            root.weight("lm_head", config.vocab_size, config.hidden_size)
        };
        let mixer_sizes = [config.hc_count, config.hidden_size, config.hc_lowrank];
        let mixer = root.at("hyper_connection_mixer");
        let (theta, rotated) = config.rope();
        let head = root.at("mtp");
        Ok(Self {
            embed_tokens,
            layers,
            hyper_connection_mixer: GatedResidual::load(
                &mixer,
                mixer_sizes,
                offset,
                config.rms_norm_eps,
                false,
            ),
            lm_head,
            rope: Rope::new(&options.stream, theta, rotated),
            mtp: head.exists().then(|| MtpWeights::load(&head, &config, offset)),
            options: options.clone(),
            config,
        })
    }

    /// The residual streams [N, S * D] of all rows after the last layer.
    fn trunk(
        &self,
        batch: &mut [BatchSegment<'_>],
        watch: Option<&RefCell<Vec<LayerDecisions>>>,
    ) -> Result<(Array, Vec<Segment>), ModelError> {
        let segments = segments_of(batch);
        let ids: Vec<u32> = batch.iter().flat_map(|segment| segment.tokens).copied().collect();
        let tokens: Vec<&[u32]> = batch.iter().map(|segment| segment.tokens).collect();
        let angles = self.rope.rows(positions_of(&segments).into_iter())?;
        let pass = Pass { segments: &segments, tokens: &tokens, rope: &self.rope, angles: &angles, watch };
        let ids = Array::from_slice(&self.options.stream, &ids, &[ids.len()])?;
        let embedded = ops::gather_rows(&self.embed_tokens, &ids)?;
        let mut x = ops::concatenate(&vec![&embedded; self.config.hc_count], 1)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let mut caches: Vec<&mut LayerCache> =
                batch.iter_mut().filter_map(|segment| segment.cache.layers.get_mut(i)).collect();
            if let Some(watch) = watch {
                watch.borrow_mut().push(LayerDecisions::default());
            }
            x = layer.forward(&x, &pass, &mut caches)?;
        }
        for segment in batch {
            segment.cache.advance(segment.tokens.len());
        }
        Ok((x, segments))
    }
}

impl CausalLm for Model {
    fn vocabulary(&self) -> usize {
        self.config.vocab_size
    }

    fn max_context(&self) -> usize {
        self.config.max_position_embeddings
    }

    fn new_cache(&self) -> SequenceCache {
        SequenceCache::new(
            self.layers.iter().map(|layer| layer.new_cache(&self.config, &self.options)).collect(),
        )
    }

    fn decisions(&self, tokens: &[u32]) -> Result<Vec<LayerDecisions>, ModelError> {
        let (mut cache, seen) = (self.new_cache(), RefCell::new(Vec::new()));
        let mut batch = [BatchSegment { tokens, cache: &mut cache, logits: LogitRows::None }];
        self.trunk(&mut batch, Some(&seen))?;
        Ok(seen.into_inner())
    }

    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let (wide, segments) = self.trunk(batch, None)?;
        let Some(rows) = wanted_rows(&wide, batch, &segments)? else {
            return Ok(Forward { logits: None, streams: Some(wide) });
        };
        let (mixed, _) = self.hyper_connection_mixer.read(&rows)?;
        Ok(Forward { logits: Some(ops::linear(&mixed, &self.lm_head)?), streams: Some(wide) })
    }

    fn draft_head(&self) -> Option<Box<dyn DraftHead + '_>> {
        self.mtp
            .as_ref()
            .map(|weights| -> Box<dyn DraftHead + '_> { Box::new(mtp::Mtp { model: self, weights }) })
    }
}

/// Loads a checkpoint of this family.
pub(crate) fn load(
    files: &ModelFiles,
    config: Value,
    options: &LoadOptions,
) -> Result<LoadedModel, ModelError> {
    let model_type = config["model_type"].as_str().unwrap_or_default().to_owned();
    let config: Config = text_config(files, config)?;
    config.validate()?;
    let checkpoint = Checkpoint::load(files)?;
    let params = params(&options.stream, &checkpoint, &config);
    let bytes_per_token = bytes_per_token(&checkpoint, &config);
    let model = Model::load(&params.root(), config, Layout::of(&checkpoint), options)?;
    Ok(LoadedModel {
        model: Box::new(model),
        stream: options.stream.clone(),
        model_type,
        sampler: SamplerRule::Mtplx,
        parameters: params.finish()?,
        weight_bytes: checkpoint.total_bytes(),
        bytes_per_token,
        skipped_tensors: checkpoint.names().filter(|name| is_vision(name)).count(),
    })
}

/// Describes a checkpoint of this family without reading its weights.
pub(crate) fn describe(
    checkpoint: &Checkpoint,
    files: &ModelFiles,
    config: Value,
) -> Result<Description, ModelError> {
    let model_type = config["model_type"].as_str().unwrap_or_default().to_owned();
    let config: Config = text_config(files, config)?;
    config.validate()?;
    let options = LoadOptions::new(&Stream::new(&ds4_array::Device::reference()));
    let params = params(&options.stream, checkpoint, &config).dry();
    let model = Model::load(&params.root(), config.clone(), Layout::of(checkpoint), &options)?;
    let has_draft_head = model.mtp.is_some();
    let mut remarks = Vec::new();
    let vision = checkpoint.names().filter(|name| is_vision(name)).count();
    if vision > 0 {
        remarks.push(format!("{vision} tensors of the vision tower are skipped: pictures are not supported"));
    }
    remarks.extend(
        checkpoint
            .unsupported()
            .map(|tensor| format!("{} has the unsupported type {}", tensor.name, tensor.dtype)),
    );
    if config.draft_layers() > 0 && !has_draft_head {
        remarks.push("the draft head (mtp.*) is missing: no speculative decoding with it".to_owned());
    }
    let (parameters, problems) = match params.finish() {
        Ok(parameters) => (parameters, Vec::new()),
        Err(error) => (0, vec![error.to_string()]),
    };
    let (fixed, growing) = cache_sizes(&config)?;
    let table = |tensor: &&ds4_weights::Tensor| tensor.name.contains("ngram");
    Ok(Description {
        family: "Qwen3.8 Flash Next",
        model_type,
        layers: layer_counts(&config, has_draft_head)?,
        sizes: sizes(&config),
        parameters,
        bytes_by_type: bytes_by_type(checkpoint),
        table_bytes: checkpoint.tensors().filter(table).map(|t| t.bytes.as_ref().len() as u64).sum(),
        max_context: config.max_position_embeddings,
        fixed_cache_bytes: fixed,
        cache_bytes_per_1024: growing,
        remarks,
        problems,
    })
}

fn layer_counts(config: &Config, has_draft_head: bool) -> Result<Vec<LayerCount>, ModelError> {
    let kinds = config.layer_types()?;
    let count = |kind: LayerType| kinds.iter().filter(|&&k| k == kind).count();
    let all = [
        ("gated delta net", count(LayerType::Linear)),
        ("indexed attention", count(LayerType::Attention)),
        ("of these with n-gram embedding", config.embedding_layers().count()),
        ("draft head", usize::from(has_draft_head)),
    ];
    let present = all.into_iter().filter(|(_, count)| *count > 0);
    Ok(present.map(|(kind, count)| LayerCount { kind: kind.to_owned(), count }).collect())
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

/// Cache bytes of a sequence: fixed ones, and those for 1024 tokens.
fn cache_sizes(config: &Config) -> Result<(u64, u64), ModelError> {
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
    Ok(((fixed * float) as u64, (count(LayerType::Attention) * growing) as u64))
}

/// See [`LoadedModel::bytes_per_token`]. The rows of n-gram tables, one embedding a layer, are too few to count.
fn bytes_per_token(checkpoint: &Checkpoint, config: &Config) -> u64 {
    let has_head = checkpoint.names().any(|name| name.ends_with("lm_head.weight"));
    let moe = config.moe();
    let read = |tensor: &ds4_weights::Tensor| {
        let bytes = tensor.bytes.as_ref().len() as u64;
        let Some(name) = rename(&tensor.name, config.embedding_layers().next()) else { return 0 };
        if name.starts_with("mtp.") || name.contains(".ngram_embedding.") {
            0
        } else if name.starts_with("embed_tokens.") && has_head {
            bytes / config.vocab_size as u64
        } else if name.contains(".mlp.experts.") {
            bytes * moe.experts_per_token as u64 / moe.experts as u64
        } else {
            bytes
        }
    };
    checkpoint.tensors().map(read).sum()
}

fn params<'a>(stream: &Stream, checkpoint: &'a Checkpoint, config: &Config) -> Params<'a> {
    let table_layer = config.embedding_layers().next();
    Params::new(stream, checkpoint, |name| rename(name, table_layer))
}

fn is_vision(name: &str) -> bool {
    ["model.visual.", "visual.", "vision_tower."].iter().any(|prefix| name.starts_with(prefix))
}

/// A tensor's name in this file's terms, from any of the layouts: released (`model.language_model.*`), transformers
/// (`model.*`), MLX (`language_model.model.*`). `None` for tensors of parts that are not supported.
fn rename(name: &str, table_layer: Option<usize>) -> Option<String> {
    if is_vision(name) || name.ends_with("rotary_emb.inv_freq") {
        return None;
    }
    // The table that MTPLX keeps in a file of its own belongs to the first per-layer embedding.
    if let (Some(part), Some(layer)) = (name.strip_prefix("ngram."), table_layer) {
        return Some(format!("layers.{layer}.ple.ple_embedding.ngram_embedding.{part}"));
    }
    let prefixes = ["model.language_model.", "language_model.model.", "language_model.", "model."];
    let inner = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    Some(inner.replace(".ple.conv_weight", ".ple.conv1d.weight"))
}
