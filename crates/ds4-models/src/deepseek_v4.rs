//! DeepSeek V4 (`deepseek_v4`): attention with shared keys over a sliding window and compressed entries, under
//! manifold-constrained hyper-connections, with a mixture of experts in each layer.
//!
//! Read bottom-up: configuration, layer, model, names. The draft head (`mtp.*`) is not supported; its tensors are skipped.

mod config;
mod describe;
mod rope_settings;

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, Stream};
use ds4_layers::{
    LayerCache, LayerError, ManifoldHead, ManifoldHyperConnection, Params, Rope, RopeRows, Scope, ScoredMoe,
    Segment, SequenceCache, SharedKeyAttention, WindowedCache,
};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::batch::{positions_of, segments_of, tokens_of, wanted_rows};
use crate::decisions::{Watch, note, watched};
use crate::registry::family_config;
use crate::trunk::{embed, embeddings_and_head, row_norm, through_layers};
use crate::{
    BatchSegment, BlockSelection, CausalLm, Forward, LayerDecisions, LoadOptions, LoadedModel, ModelError,
    SamplerRule,
};

use config::{Config, LayerType};
pub(crate) use describe::describe;

/// One transformer block.
struct DecoderLayer {
    kind: LayerType,
    attn_hc: ManifoldHyperConnection,
    input_layernorm: Array,
    self_attn: SharedKeyAttention,
    ffn_hc: ManifoldHyperConnection,
    post_attention_layernorm: Array,
    mlp: ScoredMoe,
}

/// What all layers of a pass share.
struct Pass<'a> {
    segments: &'a [Segment],
    /// The ids of all rows.
    tokens: &'a [u32],
    /// Angles in layers that only slide.
    main: Angles<'a>,
    /// Angles in layers that compress.
    compress: Angles<'a>,
    norm_eps: f32,
    /// Where decisions are noted, if somebody checks them; then the batch is one sequence.
    watch: Option<&'a Watch>,
}

/// Angles of any position, and those of the rows.
struct Angles<'a> {
    rope: &'a Rope,
    rows: RopeRows,
}

impl Pass<'_> {
    fn angles(&self, kind: LayerType) -> &Angles<'_> {
        match kind {
            LayerType::Sliding => &self.main,
            LayerType::Sparse | LayerType::Heavy => &self.compress,
        }
    }
}

impl DecoderLayer {
    fn load(scope: &Scope<'_>, config: &Config, kind: LayerType, hashed: bool) -> Self {
        let norm = |name: &str| scope.array(&format!("{name}.weight"), &[config.hidden_size]);
        let connection = |name: &str| ManifoldHyperConnection::load(&scope.at(name), config.streams());
        let table = hashed.then_some(config.vocab_size);
        Self {
            kind,
            attn_hc: connection("attn_hc"),
            input_layernorm: norm("input_layernorm"),
            self_attn: SharedKeyAttention::load(
                &scope.at("self_attn"),
                config.attention(),
                config.compressor(kind),
                config.index(kind),
                config.rms_norm_eps,
            ),
            ffn_hc: connection("ffn_hc"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            mlp: ScoredMoe::load(&scope.at("mlp"), config.moe(), table),
        }
    }

    /// `x` [N, S * D] through the layer.
    fn forward(
        &self,
        x: &Array,
        pass: &Pass<'_>,
        caches: &mut [&mut LayerCache],
    ) -> Result<Array, LayerError> {
        let mut caches: Vec<&mut WindowedCache> =
            caches.iter_mut().filter_map(|cache| cache.as_windowed()).collect();
        let (read, coefficients) = self.attn_hc.read(x)?;
        let input = row_norm(&read, &self.input_layernorm, pass.norm_eps)?;
        let angles = pass.angles(self.kind);
        let mixed = self.self_attn.forward(&input, pass.segments, &mut caches, angles.rope, &angles.rows)?;
        note(pass.watch, |seen| {
            let position = pass.segments[0].first_position;
            let selected = self.self_attn.selected_entries(&input, caches[0], &angles.rows, position)?;
            seen.selection = selected.map(|(blocks, block)| BlockSelection { blocks, block });
            Ok(())
        })?;
        let x = self.attn_hc.write(x, &coefficients, &mixed)?;
        let (read, coefficients) = self.ffn_hc.read(&x)?;
        let input = row_norm(&read, &self.post_attention_layernorm, pass.norm_eps)?;
        note(pass.watch, |seen| {
            seen.routes = Some(self.mlp.route(&input, pass.tokens)?.0);
            Ok(())
        })?;
        self.ffn_hc.write(&x, &coefficients, &self.mlp.forward(&input, pass.tokens)?)
    }
}

/// The whole model.
struct Model {
    config: Config,
    options: LoadOptions,
    embed_tokens: Weight,
    layers: Vec<DecoderLayer>,
    hc_head: ManifoldHead,
    norm: Array,
    lm_head: Weight,
    main_rope: Rope,
    compress_rope: Rope,
}

impl Model {
    fn load(root: &Scope<'_>, config: Config, options: &LoadOptions) -> Result<Self, ModelError> {
        let (kinds, hashed) = (config.layer_types()?, config.hashed_layers()?);
        let layer = |(i, (kind, hashed)): (usize, (LayerType, bool))| {
            DecoderLayer::load(&root.at(format!("layers.{i}")), &config, kind, hashed)
        };
        let layers = kinds.into_iter().zip(hashed).enumerate().map(layer).collect();
        let tied = config.tie_word_embeddings;
        let (embed_tokens, lm_head) = embeddings_and_head(root, config.vocab_size, config.hidden_size, tied);
        let (main_rope, compress_rope) = config.rope.ropes(&options.stream, config.head_dim);
        Ok(Self {
            embed_tokens,
            layers,
            hc_head: ManifoldHead::load(&root.at("hc_head"), config.streams()),
            norm: root.array("norm.weight", &[config.hidden_size]),
            lm_head,
            main_rope,
            compress_rope,
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
        let positions = positions_of(&segments);
        let angles = |rope| -> Result<Angles<'_>, LayerError> {
            Ok(Angles { rope, rows: Rope::rows(rope, positions.iter().copied())? })
        };
        let pass = Pass {
            segments: &segments,
            tokens: &tokens,
            main: angles(&self.main_rope)?,
            compress: angles(&self.compress_rope)?,
            norm_eps: self.config.rms_norm_eps,
            watch,
        };
        let x = embed(&self.options.stream, &self.embed_tokens, &tokens, self.config.hc_mult)?;
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
        let LoadOptions { stream, key_value_dtype } = &self.options;
        let cache =
            |layer: &DecoderLayer| LayerCache::Windowed(layer.self_attn.new_cache(stream, *key_value_dtype));
        SequenceCache::new(self.layers.iter().map(cache).collect())
    }

    fn decisions(&self, tokens: &[u32]) -> Result<Vec<LayerDecisions>, ModelError> {
        watched(self, tokens, |batch, watch| self.trunk(batch, watch))
    }

    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let (wide, segments) = self.trunk(batch, None)?;
        let logits = match wanted_rows(&wide, batch, &segments)? {
            None => None,
            Some(rows) => {
                let normed = row_norm(&self.hc_head.read(&rows)?, &self.norm, self.config.rms_norm_eps)?;
                Some(ops::linear(&normed, &self.lm_head)?)
            }
        };
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
    let params = params(&options.stream, &checkpoint);
    let bytes_per_token = describe::bytes_per_token(&checkpoint, &config);
    let model = Model::load(&params.root(), config, options)?;
    Ok(LoadedModel {
        model: Box::new(model),
        stream: options.stream.clone(),
        model_type,
        sampler: SamplerRule::Ds4,
        parameters: params.finish()?,
        weight_bytes: checkpoint.total_bytes(),
        bytes_per_token,
        skipped: describe::skipped(&checkpoint),
    })
}

fn params<'a>(stream: &Stream, checkpoint: &'a Checkpoint) -> Params<'a> {
    Params::new(stream, checkpoint, rename)
}

/// Whether a tensor belongs to the draft head.
fn is_draft(name: &str) -> bool {
    name.strip_prefix("model.").unwrap_or(name).starts_with("mtp.")
}

/// Parts of released names, in the order in which they are replaced by this file's.
const RENAMED: &[(&str, &str)] = &[
    (".attn.", ".self_attn."),
    (".ffn.", ".mlp."),
    (".self_attn.indexer.compressor.", ".self_attn.compressor.indexer."),
    (".self_attn.indexer.", ".self_attn.compressor.indexer."),
    (".indexer.weights_proj.", ".indexer.scorer.weights_proj."),
    (".attn_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    (".hc_attn_", ".attn_hc."),
    (".hc_ffn_", ".ffn_hc."),
    (".attn_sink", ".sinks"),
    (".self_attn.norm.", ".self_attn.kv_norm."),
    (".compressor.norm.", ".compressor.kv_norm."),
    (".indexer.norm.", ".indexer.kv_norm."),
    (".ape", ".position_bias"),
    (".wq_a.", ".q_a_proj."),
    (".wq_b.", ".q_b_proj."),
    (".wkv.", ".kv_proj."),
    (".wgate.", ".gate_proj."),
    (".wo_a.", ".o_a_proj."),
    (".wo_b.", ".o_b_proj."),
    (".q_norm.", ".q_a_norm."),
    (".gate.bias", ".gate.e_score_correction_bias"),
    (".w1.", ".gate_proj."),
    (".w2.", ".down_proj."),
    (".w3.", ".up_proj."),
];

/// A tensor's name in this file's terms, from any of the layouts: released (`layers.N.attn.wq_a`), the same as
/// transformers writes it (`model.layers.N.attn.wq_a`), or by the names of transformers' modules
/// (`model.layers.N.self_attn.q_a_proj`). `None` for the draft head.
fn rename(name: &str) -> Option<String> {
    if is_draft(name) || name.ends_with("_inv_freq") {
        return None;
    }
    let name = name.strip_prefix("model.").unwrap_or(name);
    for (released, own) in [("embed.", "embed_tokens."), ("head.", "lm_head."), ("hc_head_", "hc_head.hc_")] {
        if let Some(rest) = name.strip_prefix(released) {
            return Some(format!("{own}{rest}"));
        }
    }
    Some(RENAMED.iter().fold(name.to_owned(), |name, (released, own)| replaced(name, released, own)))
}

/// `name` with a part replaced. `.gate.bias` is not a part of `.gate.biases`, which a quantised weight has.
fn replaced(name: String, released: &str, own: &str) -> String {
    if released.ends_with(['.', '_']) {
        return name.replace(released, own);
    }
    match name.strip_suffix(released) {
        Some(start) => format!("{start}{own}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_layouts_lead_to_the_same_names() {
        for (names, own) in [
            (["embed.weight", "model.embed_tokens.weight"], "embed_tokens.weight"),
            (["head.weight", "lm_head.weight"], "lm_head.weight"),
            (["hc_head_fn", "model.hc_head.hc_fn"], "hc_head.hc_fn"),
            (
                ["layers.3.ffn.gate.bias", "layers.3.mlp.gate.e_score_correction_bias"],
                "layers.3.mlp.gate.e_score_correction_bias",
            ),
            (["layers.3.ffn.gate.biases", "layers.3.mlp.gate.biases"], "layers.3.mlp.gate.biases"),
            (["layers.3.hc_ffn_base", "model.layers.3.ffn_hc.base"], "layers.3.ffn_hc.base"),
            (
                ["layers.0.attn.kv_norm.weight", "model.layers.0.attn.norm.weight"],
                "layers.0.self_attn.kv_norm.weight",
            ),
            (
                [
                    "layers.2.attn.compressor.norm.weight",
                    "model.layers.2.self_attn.compressor.kv_norm.weight",
                ],
                "layers.2.self_attn.compressor.kv_norm.weight",
            ),
            (
                [
                    "layers.2.attn.indexer.compressor.ape",
                    "model.layers.2.self_attn.compressor.indexer.position_bias",
                ],
                "layers.2.self_attn.compressor.indexer.position_bias",
            ),
            (
                [
                    "layers.2.attn.indexer.weights_proj.weight",
                    "model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight",
                ],
                "layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight",
            ),
            (
                ["layers.1.ffn.experts.7.w2.weight", "model.layers.1.ffn.experts.7.w2.weight"],
                "layers.1.mlp.experts.7.down_proj.weight",
            ),
            (
                ["layers.1.ffn.gate.bias", "model.layers.1.mlp.gate.e_score_correction_bias"],
                "layers.1.mlp.gate.e_score_correction_bias",
            ),
        ] {
            for name in names {
                assert_eq!(rename(name).as_deref(), Some(own), "{name}");
            }
        }
        assert_eq!(rename("mtp.0.e_proj.weight"), None);
    }
}
