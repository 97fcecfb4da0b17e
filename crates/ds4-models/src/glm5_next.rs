//! GLM 5.3 Flash (`glm5_next`): Kimi delta attention and latent attention over pooled selections, under
//! manifold-constrained hyper-connections, with dense networks in the first layers and a mixture of experts in the others.
//!
//! Read bottom-up: configuration, layer, model, names. Pictures and the draft head are not supported; their tensors are
//! skipped.

mod config;
mod describe;

use std::cell::RefCell;

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, Stream};
use ds4_layers::{
    DeltaCache, GatedMlp, KimiDeltaAttention, LatentAttention, LatentCache, LayerCache, LayerError,
    ManifoldHyperConnection, Params, Scope, ScoredMoe, Segment, Selections, SequenceCache,
};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::batch::{segments_of, tokens_of, wanted_rows};
use crate::decisions::{Watch, note, watched};
use crate::names::{inner, is_vision};
use crate::registry::family_config;
use crate::trunk::{embed, embeddings_and_head, row_norm, through_layers};
use crate::{
    BatchSegment, BlockSelection, CausalLm, Forward, LayerDecisions, LoadOptions, LoadedModel, ModelError,
    SamplerRule,
};

use config::{Config, LayerType};
pub(crate) use describe::describe;

/// The token mixer of a layer.
enum Mixer {
    Linear(KimiDeltaAttention),
    Attention(LatentAttention),
}

/// The feed-forward part of a layer.
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
enum FeedForward {
    Dense(GatedMlp),
    Sparse(ScoredMoe),
}

/// One transformer block.
struct DecoderLayer {
    attn_hc: ManifoldHyperConnection,
    input_layernorm: Array,
    self_attn: Mixer,
    ffn_hc: ManifoldHyperConnection,
    post_attention_layernorm: Array,
    mlp: FeedForward,
}

/// What all layers of a pass share.
struct Pass<'a> {
    segments: &'a [Segment],
    /// The ids of all rows.
    tokens: &'a [u32],
    /// What the last indexer has selected for each segment.
    selections: RefCell<Selections>,
    norm_eps: f32,
    /// Where decisions are noted, if somebody checks them; then the batch is one sequence.
    watch: Option<&'a Watch>,
    /// What the last indexer selects for every row, while somebody watches.
    selected: RefCell<Option<Array>>,
    /// Tokens of a pool.
    pool: usize,
}

impl DecoderLayer {
    fn load(scope: &Scope<'_>, config: &Config, kind: LayerType, sparse: bool) -> Self {
        let eps = config.rms_norm_eps;
        let norm = |name: &str| scope.array(&format!("{name}.weight"), &[config.hidden_size]);
        let connection = |name: &str| ManifoldHyperConnection::load(&scope.at(name), config.streams());
        let (attention, mlp) = (scope.at("self_attn"), scope.at("mlp"));
        let self_attn = match kind {
            LayerType::Linear => Mixer::Linear(KimiDeltaAttention::load(&attention, config.delta(), eps)),
            LayerType::Attention { own_indexer } => {
                let (sizes, pools) = (config.attention(), config.indexer());
                Mixer::Attention(LatentAttention::load(&attention, sizes, pools, own_indexer, eps))
            }
        };
        let mlp = if sparse {
            FeedForward::Sparse(ScoredMoe::load(&mlp, config.moe(), None))
        } else {
            let limit = Some(config.swiglu_limit);
            FeedForward::Dense(GatedMlp::load(&mlp, config.hidden_size, config.intermediate_size, limit))
        };
        Self {
            attn_hc: connection("attn_hc"),
            input_layernorm: norm("input_layernorm"),
            self_attn,
            ffn_hc: connection("ffn_hc"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            mlp,
        }
    }

    /// `x` [N, S * D] through the layer.
    fn forward(
        &self,
        x: &Array,
        pass: &Pass<'_>,
        caches: &mut [&mut LayerCache],
    ) -> Result<Array, LayerError> {
        let (read, coefficients) = self.attn_hc.read(x)?;
        let input = row_norm(&read, &self.input_layernorm, pass.norm_eps)?;
        let mixed = self.mix(&input, pass, caches)?;
        let x = self.attn_hc.write(x, &coefficients, &mixed)?;
        let (read, coefficients) = self.ffn_hc.read(&x)?;
        let input = row_norm(&read, &self.post_attention_layernorm, pass.norm_eps)?;
        let out = match &self.mlp {
            FeedForward::Dense(mlp) => mlp.forward(&input)?,
            FeedForward::Sparse(moe) => {
                note(pass.watch, |seen| {
                    seen.routes = Some(moe.route(&input, pass.tokens)?.0);
                    Ok(())
                })?;
                moe.forward(&input, pass.tokens)?
            }
        };
        self.ffn_hc.write(&x, &coefficients, &out)
    }

    /// The normed input [N, D] through the token mixer.
    fn mix(
        &self,
        input: &Array,
        pass: &Pass<'_>,
        caches: &mut [&mut LayerCache],
    ) -> Result<Array, LayerError> {
        match &self.self_attn {
            Mixer::Linear(layer) => {
                let mut caches: Vec<&mut DeltaCache> =
                    caches.iter_mut().filter_map(|cache| cache.as_delta()).collect();
                layer.forward(input, pass.segments, &mut caches)
            }
            Mixer::Attention(layer) => {
                let mut caches: Vec<&mut LatentCache> =
                    caches.iter_mut().filter_map(|cache| cache.as_latent()).collect();
                let mut selections = pass.selections.borrow_mut();
                let mixed = layer.forward(input, pass.segments, &mut caches, &mut selections)?;
                note(pass.watch, |seen| {
                    let position = pass.segments[0].first_position;
                    let mut selected = pass.selected.borrow_mut();
                    if let Some(pools) = layer.selected_pools(input, caches[0], position)? {
                        *selected = Some(pools);
                    }
                    let blocks = selected.clone();
                    seen.selection = blocks.map(|blocks| BlockSelection { blocks, block: pass.pool });
                    Ok(())
                })?;
                Ok(mixed)
            }
        }
    }

    fn new_cache(&self, options: &LoadOptions) -> LayerCache {
        match &self.self_attn {
            Mixer::Linear(layer) => LayerCache::Delta(layer.new_cache()),
            Mixer::Attention(layer) => LayerCache::Latent(layer.new_cache(options.key_value_dtype)),
        }
    }
}

/// The whole model.
struct Model {
    config: Config,
    options: LoadOptions,
    embed_tokens: Weight,
    layers: Vec<DecoderLayer>,
    norm: Array,
    lm_head: Weight,
}

impl Model {
    fn load(root: &Scope<'_>, config: Config, options: &LoadOptions) -> Result<Self, ModelError> {
        let (kinds, sparse) = (config.layer_types()?, config.sparse_layers()?);
        let layer = |(i, (kind, sparse)): (usize, (LayerType, bool))| {
            DecoderLayer::load(&root.at(format!("layers.{i}")), &config, kind, sparse)
        };
        let layers = kinds.into_iter().zip(sparse).enumerate().map(layer).collect();
        let tied = config.tie_word_embeddings;
        let (embed_tokens, lm_head) = embeddings_and_head(root, config.vocab_size, config.hidden_size, tied);
        Ok(Self {
            embed_tokens,
            layers,
            norm: root.array("norm.weight", &[config.hidden_size]),
            lm_head,
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
        let tokens = tokens_of(batch);
        let pass = Pass {
            segments: &segments,
            tokens: &tokens,
            selections: RefCell::default(),
            norm_eps: self.config.rms_norm_eps,
            watch,
            selected: RefCell::default(),
            pool: self.config.indexer().block,
        };
        let x = embed(&self.options.stream, &self.embed_tokens, &tokens, self.config.hc_mult)?;
        let x = through_layers(&self.layers, x, batch, watch, |layer, x, caches| {
            layer.forward(x, &pass, caches)
        })?;
        Ok((x, segments))
    }

    /// Logits of the streams `rows` [R, S * D]: the head reads their mean.
    fn logits(&self, rows: &Array) -> Result<Array, LayerError> {
        let shape = [rows.shape()[0], self.config.hc_mult, self.config.hidden_size];
        let mean = ops::mean_middle(&ops::reshape(rows, shape)?)?;
        Ok(ops::linear(&row_norm(&mean, &self.norm, self.config.rms_norm_eps)?, &self.lm_head)?)
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
        SequenceCache::new(self.layers.iter().map(|layer| layer.new_cache(&self.options)).collect())
    }

    fn decisions(&self, tokens: &[u32]) -> Result<Vec<LayerDecisions>, ModelError> {
        watched(self, tokens, |batch, watch| self.trunk(batch, watch))
    }

    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let (wide, segments) = self.trunk(batch, None)?;
        let wanted = wanted_rows(&wide, batch, &segments)?;
        let logits = wanted.map(|rows| self.logits(&rows)).transpose()?;
        Ok(Forward { logits, streams: None })
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
    let skipped = describe::skipped(&checkpoint, &config);
    let model = Model::load(&params.root(), config, options)?;
    Ok(LoadedModel {
        model: Box::new(model),
        stream: options.stream.clone(),
        model_type,
        sampler: SamplerRule::Ds4,
        parameters: params.finish()?,
        weight_bytes: checkpoint.total_bytes(),
        bytes_per_token,
        skipped,
    })
}

fn params<'a>(stream: &Stream, checkpoint: &'a Checkpoint, config: &Config) -> Params<'a> {
    let layers = config.num_hidden_layers;
    Params::new(stream, checkpoint, |name| rename(name, layers))
}

/// A tensor's name in this file's terms, from any of the layouts: released (`model.language_model.layers.N.hc_attn_fn`),
/// the same without a prefix as transformers saves the trunk, or by the names of transformers' modules
/// (`model.layers.N.attn_hc.fn`). `None` for tensors of parts that are not supported: vision, and the draft head, which is
/// the layer behind the last of the `layers` layers.
fn rename(name: &str, layers: usize) -> Option<String> {
    if is_vision(name) {
        return None;
    }
    let inner = inner(name);
    let number = inner.strip_prefix("layers.").and_then(|rest| rest.split('.').next());
    if number.and_then(|number| number.parse().ok()).is_some_and(|layer: usize| layer >= layers) {
        return None;
    }
    Some(
        inner
            .replace(".hc_attn_", ".attn_hc.")
            .replace(".hc_ffn_", ".ffn_hc.")
            .replace(".self_attn.forget_gate.", ".self_attn."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_layouts_lead_to_the_same_names() {
        for (names, own) in [
            (["model.language_model.embed_tokens.weight", "embed_tokens.weight"], "embed_tokens.weight"),
            (["lm_head.weight", "model.lm_head.weight"], "lm_head.weight"),
            (["model.language_model.layers.3.hc_ffn_base", "layers.3.ffn_hc.base"], "layers.3.ffn_hc.base"),
            (
                ["layers.0.self_attn.A_log", "model.layers.0.self_attn.forget_gate.A_log"],
                "layers.0.self_attn.A_log",
            ),
        ] {
            for name in names {
                assert_eq!(rename(name, 4).as_deref(), Some(own), "{name}");
            }
        }
    }

    #[test]
    fn vision_and_the_layer_behind_the_last_are_left_out() {
        assert_eq!(rename("model.visual.blocks.0.norm1.weight", 4), None);
        assert_eq!(rename("model.language_model.layers.4.eh_proj.weight", 4), None);
        assert!(rename("model.language_model.layers.3.mlp.gate.weight", 4).is_some());
    }
}
