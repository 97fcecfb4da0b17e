//! The fields of `config.json` that the family uses, with the family's defaults, and what they must fulfil.

use ds4_layers::{AttentionSizes, GateActivation, GatedDeltaSizes, IndexerSizes, MoeSizes, NGramSizes};
use serde::Deserialize;

use crate::ModelError;
use crate::config_checks::{require, require_entry_per_layer, require_positive, wrong_value};
use crate::registry::FamilyConfig;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    #[serde(default)]
    head_dim: Option<usize>,
    #[serde(default = "silu")]
    hidden_act: String,
    #[serde(default = "max_position_embeddings")]
    pub(super) max_position_embeddings: usize,
    #[serde(default = "rms_norm_eps")]
    pub(super) rms_norm_eps: f32,
    #[serde(default)]
    pub(super) tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    rope_parameters: RopeParameters,
    #[serde(default)]
    layer_types: Option<Vec<String>>,
    #[serde(default = "full_attention_interval")]
    full_attention_interval: usize,
    #[serde(default = "linear_conv_kernel_dim")]
    linear_conv_kernel_dim: usize,
    linear_key_head_dim: usize,
    linear_value_head_dim: usize,
    linear_num_key_heads: usize,
    linear_num_value_heads: usize,
    #[serde(default)]
    output_gate_type: Option<String>,
    moe_intermediate_size: usize,
    shared_expert_intermediate_size: usize,
    num_experts_per_tok: usize,
    num_experts: usize,
    #[serde(default = "yes")]
    norm_topk_prob: bool,
    #[serde(default = "hc_count")]
    pub(super) hc_count: usize,
    #[serde(default = "hc_lowrank")]
    pub(super) hc_lowrank: usize,
    #[serde(default)]
    ple_layer_ids: Option<Vec<usize>>,
    #[serde(default)]
    ple_embed_dim: Option<usize>,
    #[serde(default = "ple_conv_kernel_size")]
    pub(super) ple_conv_kernel_size: usize,
    #[serde(default = "ngram_size")]
    ngram_size: usize,
    #[serde(default = "heads_per_ngram")]
    heads_per_ngram: usize,
    #[serde(default = "ngram_vocab_size_base")]
    ngram_vocab_size_base: u64,
    #[serde(default = "make_ngram_vocab_size_divisible_by")]
    make_ngram_vocab_size_divisible_by: u64,
    #[serde(default = "seed")]
    seed: u64,
    #[serde(default)]
    eos_token_id: Option<OneOrMany>,
    // The indexer's settings are absent or null in a model without attention.
    #[serde(default, deserialize_with = "zero_if_null")]
    indexer_n_heads: usize,
    #[serde(default)]
    indexer_kv_heads: Option<usize>,
    #[serde(default, deserialize_with = "zero_if_null")]
    indexer_head_dim: usize,
    #[serde(default, deserialize_with = "zero_if_null")]
    indexer_budget: usize,
    #[serde(default, deserialize_with = "zero_if_null")]
    indexer_compress_ratio: usize,
    #[serde(default)]
    mtp_num_hidden_layers: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct RopeParameters {
    #[serde(default)]
    rope_type: Option<String>,
    #[serde(default)]
    rope_theta: Option<f32>,
    #[serde(default)]
    partial_rotary_factor: Option<f32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

fn yes() -> bool {
    true
}
fn zero_if_null<'de, D: serde::Deserializer<'de>>(value: D) -> Result<usize, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(0))
}
fn silu() -> String {
    "silu".to_owned()
}
fn max_position_embeddings() -> usize {
    32768
}
fn rms_norm_eps() -> f32 {
    1e-6
}
fn full_attention_interval() -> usize {
    4
}
fn linear_conv_kernel_dim() -> usize {
    4
}
fn hc_count() -> usize {
    4
}
fn hc_lowrank() -> usize {
    320
}
fn ple_conv_kernel_size() -> usize {
    4
}
fn ngram_size() -> usize {
    3
}
fn heads_per_ngram() -> usize {
    8
}
fn ngram_vocab_size_base() -> u64 {
    20_000_000
}
fn make_ngram_vocab_size_divisible_by() -> u64 {
    128
}
fn seed() -> u64 {
    1234
}

/// Kind of a layer's token mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerType {
    /// Gated delta net.
    Linear,
    /// Indexed attention.
    Attention,
}

impl FamilyConfig for Config {
    fn validate(&self) -> Result<(), ModelError> {
        self.validate_sizes()?;
        self.validate_attention()?;
        self.validate_embeddings()
    }
}

impl Config {
    pub(super) fn layer_types(&self) -> Result<Vec<LayerType>, ModelError> {
        let Some(names) = &self.layer_types else {
            let kind = |i| {
                if (i + 1) % self.full_attention_interval == 0 {
                    LayerType::Attention
                } else {
                    LayerType::Linear
                }
            };
            return Ok((0..self.num_hidden_layers).map(kind).collect());
        };
        let kinds = names.iter().map(|name| match name.as_str() {
            "linear_attention" => Ok(LayerType::Linear),
            // Published checkpoints say "full_attention" for layers that have an indexer.
            "full_attention" | "indexed_attention" => Ok(LayerType::Attention),
            other => Err(wrong_value(
                "layer_types",
                "linear_attention, indexed_attention or full_attention",
                other,
            )),
        });
        kinds.collect()
    }

    /// Index of the per-layer embedding of a layer, if it has one. Ids in the file count from 1.
    pub(super) fn embedding_of(&self, layer: usize) -> Option<usize> {
        let mut ids = self.ple_layer_ids.clone().unwrap_or_default();
        ids.sort_unstable();
        ids.dedup();
        ids.iter().position(|&id| id == layer + 1)
    }

    /// Layers, from 0, that have a per-layer embedding.
    pub(super) fn embedding_layers(&self) -> impl Iterator<Item = usize> {
        (0..self.num_hidden_layers).filter(|&layer| self.embedding_of(layer).is_some())
    }

    fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Base and number of rotated dimensions of position angles.
    pub(super) fn rope(&self) -> (f32, usize) {
        let factor = self.rope_parameters.partial_rotary_factor.unwrap_or(0.25);
        let theta = self.rope_parameters.rope_theta.unwrap_or(10_000_000.0);
        (theta, (self.head_dim() as f32 * factor) as usize)
    }

    pub(super) fn attention(&self) -> AttentionSizes {
        AttentionSizes {
            hidden: self.hidden_size,
            heads: self.num_attention_heads,
            key_value_heads: self.num_key_value_heads,
            head_dim: self.head_dim(),
        }
    }

    pub(super) fn indexer(&self) -> IndexerSizes {
        IndexerSizes {
            heads: self.indexer_n_heads,
            head_dim: self.indexer_head_dim,
            budget: self.indexer_budget,
            block: self.indexer_compress_ratio,
        }
    }

    pub(super) fn delta(&self) -> GatedDeltaSizes {
        GatedDeltaSizes {
            hidden: self.hidden_size,
            key_heads: self.linear_num_key_heads,
            value_heads: self.linear_num_value_heads,
            key_dim: self.linear_key_head_dim,
            value_dim: self.linear_value_head_dim,
            conv_kernel: self.linear_conv_kernel_dim,
        }
    }

    pub(super) fn gate_activation(&self) -> GateActivation {
        match self.output_gate_type.as_deref().unwrap_or(&self.hidden_act) {
            "sigmoid" => GateActivation::Sigmoid,
            _ => GateActivation::Silu,
        }
    }

    pub(super) fn moe(&self) -> MoeSizes {
        MoeSizes {
            hidden: self.hidden_size,
            experts: self.num_experts,
            experts_per_token: self.num_experts_per_tok,
            inner: self.moe_intermediate_size,
            shared_inner: self.shared_expert_intermediate_size,
            normalise: self.norm_topk_prob,
        }
    }

    pub(super) fn ngram(&self, index: usize) -> NGramSizes {
        let boundary = match &self.eos_token_id {
            Some(OneOrMany::One(id)) => *id,
            Some(OneOrMany::Many(ids)) => ids.first().copied().unwrap_or(0),
            None => 0,
        };
        NGramSizes {
            ngram: self.ngram_size,
            heads_per_ngram: self.heads_per_ngram,
            embed_dim: self.ple_embed_dim.unwrap_or(self.hidden_size),
            vocab_size_base: self.ngram_vocab_size_base,
            divisible_by: self.make_ngram_vocab_size_divisible_by,
            seed: self.seed,
            vocabulary: self.vocab_size as u64,
            boundary,
            index,
        }
    }

    /// Layers of the draft head that the configuration announces.
    pub(super) fn draft_layers(&self) -> usize {
        self.mtp_num_hidden_layers
    }

    fn validate_sizes(&self) -> Result<(), ModelError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim()),
            ("full_attention_interval", self.full_attention_interval),
            ("linear_conv_kernel_dim", self.linear_conv_kernel_dim),
            ("linear_key_head_dim", self.linear_key_head_dim),
            ("linear_value_head_dim", self.linear_value_head_dim),
            ("linear_num_key_heads", self.linear_num_key_heads),
            ("linear_num_value_heads", self.linear_num_value_heads),
            ("moe_intermediate_size", self.moe_intermediate_size),
            ("shared_expert_intermediate_size", self.shared_expert_intermediate_size),
            ("num_experts", self.num_experts),
            ("hc_count", self.hc_count),
            ("hc_lowrank", self.hc_lowrank),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        require_positive(&sizes)?;
        require_entry_per_layer("layer_types", self.layer_types()?.len(), self.num_hidden_layers)?;
        let chosen = self.num_experts_per_tok;
        let experts = format!("1 to {}", self.num_experts);
        require((1..=self.num_experts).contains(&chosen), "num_experts_per_tok", experts, chosen)?;
        let multiple = |of: usize| format!("a multiple of {of}");
        let (keys, values) = (self.linear_num_key_heads, self.linear_num_value_heads);
        require(values % keys == 0, "linear_num_value_heads", multiple(keys), values)?;
        let (heads, groups) = (self.num_attention_heads, self.num_key_value_heads);
        require(heads % groups == 0, "num_attention_heads", multiple(groups), heads)?;
        let act = self.hidden_act.as_str();
        require(act == "silu", "hidden_act", "silu", act)?;
        let gate = self.output_gate_type.as_deref().unwrap_or(act);
        require(matches!(gate, "silu" | "sigmoid"), "output_gate_type", "silu or sigmoid", gate)
    }

    fn validate_attention(&self) -> Result<(), ModelError> {
        require(!self.attention_bias, "attention_bias", "false", self.attention_bias)?;
        if !self.layer_types()?.contains(&LayerType::Attention) {
            return Ok(());
        }
        let indexer = [
            ("indexer_n_heads", self.indexer_n_heads),
            ("indexer_head_dim", self.indexer_head_dim),
            ("indexer_compress_ratio", self.indexer_compress_ratio),
        ];
        for (field, size) in indexer {
            require(size > 0, field, "at least 1", size)?;
        }
        let key_heads = self.indexer_kv_heads.unwrap_or(1);
        require(key_heads == 1, "indexer_kv_heads", 1, key_heads)?;
        let (budget, block) = (self.indexer_budget, self.indexer_compress_ratio);
        let expected = format!("a multiple of indexer_compress_ratio ({block}), at least that");
        require(budget >= block && budget % block == 0, "indexer_budget", expected, budget)?;
        let kind = self.rope_parameters.rope_type.as_deref().unwrap_or("default");
        require(kind == "default", "rope_parameters.rope_type", "default", kind)?;
        let (_, rotated) = self.rope();
        let most = self.head_dim().min(self.indexer_head_dim);
        let expected = format!("such that at most {most} dimensions, an even number, are rotated");
        let fits = rotated <= most && rotated % 2 == 0 && rotated > 0;
        require(fits, "rope_parameters.partial_rotary_factor", expected, rotated)
    }

    fn validate_embeddings(&self) -> Result<(), ModelError> {
        let ids = self.ple_layer_ids.clone().unwrap_or_default();
        if ids.is_empty() {
            return Ok(());
        }
        let types = self.layer_types()?;
        for id in ids {
            let on_linear = id.checked_sub(1).and_then(|layer| types.get(layer)) == Some(&LayerType::Linear);
            require(on_linear, "ple_layer_ids", "numbers of linear_attention layers, from 1", id)?;
        }
        require(self.ngram_size >= 2, "ngram_size", "at least 2", self.ngram_size)?;
        require(self.heads_per_ngram >= 1, "heads_per_ngram", "at least 1", self.heads_per_ngram)?;
        require(
            self.ple_conv_kernel_size >= 1,
            "ple_conv_kernel_size",
            "at least 1",
            self.ple_conv_kernel_size,
        )?;
        let divisor = self.make_ngram_vocab_size_divisible_by;
        require(divisor >= 1, "make_ngram_vocab_size_divisible_by", "at least 1", divisor)?;
        let most = u64::from(u32::MAX);
        let base = self.ngram_vocab_size_base;
        require(base <= most, "ngram_vocab_size_base", format!("at most {most}"), base)?;
        let sizes = self.ngram(0);
        let expected = format!("a multiple of the number of n-gram heads ({})", sizes.heads());
        let fits = sizes.embed_dim > 0 && sizes.embed_dim.is_multiple_of(sizes.heads());
        require(fits, "ple_embed_dim", expected, sizes.embed_dim)?;
        let boundary = match &self.eos_token_id {
            Some(OneOrMany::Many(ids)) => !ids.is_empty(),
            other => other.is_some(),
        };
        require(boundary, "eos_token_id", "set, because n-grams end there", "not set")
    }
}
