//! Qwen3.8 Flash Next (`qwen4_exp`): gated delta nets and indexed attention under hyper-connections, with hashed n-gram
//! embeddings in a few layers and a mixture of experts in each.
//!
//! Read bottom-up: configuration, per-layer embedding, layer, model, names. The draft head is in `mtp.rs`; pictures are
//! not supported.

mod config;
mod describe;
mod mtp;
mod per_layer_embedding;

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, Stream};
use ds4_layers::{
    AttentionCache, DeltaCache, GatedDeltaNet, GatedResidual, IndexCache, IndexedAttention, LayerCache,
    LayerError, Params, Rope, RopeRows, RowTail, Scope, Segment, SequenceCache, SparseMoe,
};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::batch::{positions_of, segments_of, tokens_of, wanted_rows};
use crate::decisions::{Watch, note, watched};
use crate::names::{inner, is_vision};
use crate::registry::family_config;
use crate::trunk::{embed, embeddings_and_head, through_layers};
use crate::{
    BatchSegment, BlockSelection, CausalLm, DraftHead, Forward, LayerDecisions, LoadOptions, LoadedModel,
    ModelError, SamplerRule, SkippedPart,
};

use config::{Config, LayerType};
pub(crate) use describe::describe;
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
    watch: Option<&'a Watch>,
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
        note(pass.watch, |seen| {
            seen.ngram_rows = self.ple.as_ref().and_then(|ple| ple.row_ids(caches[0], pass.tokens[0]));
            Ok(())
        })?;
        let x = match &self.ple {
            Some(ple) => ple.forward(x, pass.segments, pass.tokens, caches)?,
            None => x.clone(),
        };
        let read = self.attn_hyper_connection.read(&x)?;
        let input = &read.input;
        let mixed = match &self.mixer {
            Mixer::Linear(layer) => {
                let mut caches: Vec<&mut DeltaCache> =
                    caches.iter_mut().filter_map(|cache| cache.as_delta()).collect();
                layer.forward(input, pass.segments, &mut caches)?
            }
            Mixer::Attention(layer) => {
                let mut caches: Vec<&mut AttentionCache> =
                    caches.iter_mut().filter_map(|cache| cache.as_attention()).collect();
                let mixed = layer.forward(input, pass.segments, &mut caches, pass.rope, pass.angles)?;
                note(pass.watch, |seen| {
                    let position = pass.segments[0].first_position;
                    let (blocks, block) = layer.selected_blocks(input, caches[0], pass.angles, position)?;
                    seen.selection = Some(BlockSelection { blocks, block });
                    Ok(())
                })?;
                mixed
            }
        };
        let x = read.write(&x, &mixed)?;
        let read = self.mlp_hyper_connection.read(&x)?;
        note(pass.watch, |seen| {
            seen.routes = Some(self.mlp.route(&read.input)?.0);
            Ok(())
        })?;
        read.write(&x, &self.mlp.forward(&read.input)?)
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
        let tied = config.tie_word_embeddings;
        let (embed_tokens, lm_head) = embeddings_and_head(root, config.vocab_size, config.hidden_size, tied);
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
        watch: Option<&Watch>,
    ) -> Result<(Array, Vec<Segment>), ModelError> {
        let segments = segments_of(batch);
        let tokens: Vec<&[u32]> = batch.iter().map(|segment| segment.tokens).collect();
        let angles = self.rope.rows(positions_of(&segments).into_iter())?;
        let pass = Pass { segments: &segments, tokens: &tokens, rope: &self.rope, angles: &angles, watch };
        let x = embed(&self.options.stream, &self.embed_tokens, &tokens_of(batch), self.config.hc_count)?;
        let x = through_layers(&self.layers, x, batch, watch, |layer, x, caches| {
            layer.forward(x, &pass, caches)
        })?;
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
        watched(self, tokens, |batch, watch| self.trunk(batch, watch))
    }

    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let (wide, segments) = self.trunk(batch, None)?;
        let Some(rows) = wanted_rows(&wide, batch, &segments)? else {
            return Ok(Forward { logits: None, streams: Some(wide) });
        };
        let mixed = self.hyper_connection_mixer.read(&rows)?.input;
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
    let (model_type, config) = family_config::<Config>(files, config)?;
    let checkpoint = Checkpoint::load(files)?;
    let params = params(&options.stream, &checkpoint, &config);
    let bytes_per_token = describe::bytes_per_token(&checkpoint, &config);
    let model = Model::load(&params.root(), config, Layout::of(&checkpoint), options)?;
    Ok(LoadedModel {
        model: Box::new(model),
        stream: options.stream.clone(),
        model_type,
        sampler: SamplerRule::Mtplx,
        parameters: params.finish()?,
        weight_bytes: checkpoint.total_bytes(),
        bytes_per_token,
        skipped: SkippedPart::vision(&checkpoint).into_iter().collect(),
    })
}

fn params<'a>(stream: &Stream, checkpoint: &'a Checkpoint, config: &Config) -> Params<'a> {
    let table_layer = config.embedding_layers().next();
    Params::new(stream, checkpoint, |name| rename(name, table_layer))
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
    Some(inner(name).replace(".ple.conv_weight", ".ple.conv1d.weight"))
}
