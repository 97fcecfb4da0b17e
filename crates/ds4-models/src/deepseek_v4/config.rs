//! The fields of `config.json` that the family uses, with the family's defaults, and what they must fulfil.
//!
//! Two generations of names are read: those of the released checkpoints (`compress_ratios`, `num_hash_layers`,
//! `qk_rope_head_dim`, `rope_scaling`) and those that transformers writes.

use std::collections::BTreeMap;

use ds4_layers::{
    CompressorSizes, EntryIndexSizes, ManifoldSizes, RouterScore, Routing, ScoredMoeSizes, SharedKeySizes,
};
use serde::Deserialize;

use crate::ModelError;
use crate::config_checks::{require, require_entry_per_layer, require_positive, wrong_value};
use crate::registry::FamilyConfig;

use super::rope_settings::RopeSettings;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    num_attention_heads: usize,
    pub(super) head_dim: usize,
    q_lora_rank: usize,
    o_groups: usize,
    o_lora_rank: usize,
    pub(super) sliding_window: usize,
    moe_intermediate_size: usize,
    n_routed_experts: usize,
    num_experts_per_tok: usize,
    #[serde(default = "one")]
    n_shared_experts: usize,
    #[serde(default = "one")]
    num_key_value_heads: usize,
    #[serde(default = "scoring_func")]
    scoring_func: String,
    #[serde(default = "hidden_act")]
    hidden_act: String,
    #[serde(default = "routed_scaling_factor")]
    routed_scaling_factor: f32,
    #[serde(default = "swiglu_limit")]
    swiglu_limit: f32,
    #[serde(default = "max_position_embeddings")]
    pub(super) max_position_embeddings: usize,
    #[serde(default = "rms_norm_eps")]
    pub(super) rms_norm_eps: f32,
    #[serde(default = "hc_mult")]
    pub(super) hc_mult: usize,
    #[serde(default = "hc_sinkhorn_iters")]
    hc_sinkhorn_iters: usize,
    #[serde(default = "hc_eps")]
    hc_eps: f32,
    #[serde(default = "index_n_heads")]
    index_n_heads: usize,
    #[serde(default = "index_head_dim")]
    index_head_dim: usize,
    #[serde(default = "index_topk")]
    index_topk: usize,
    #[serde(default)]
    pub(super) num_nextn_predict_layers: usize,
    #[serde(default)]
    pub(super) tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    layer_types: Option<Vec<String>>,
    #[serde(default)]
    compress_rates: Option<BTreeMap<String, usize>>,
    #[serde(default)]
    compress_ratios: Option<Vec<usize>>,
    #[serde(default)]
    mlp_layer_types: Option<Vec<String>>,
    #[serde(default)]
    num_hash_layers: Option<usize>,
    #[serde(flatten)]
    pub(super) rope: RopeSettings,
}

fn one() -> usize {
    1
}
fn scoring_func() -> String {
    "sqrtsoftplus".to_owned()
}
fn hidden_act() -> String {
    "silu".to_owned()
}
fn routed_scaling_factor() -> f32 {
    1.5
}
fn swiglu_limit() -> f32 {
    10.0
}
fn max_position_embeddings() -> usize {
    1_048_576
}
fn rms_norm_eps() -> f32 {
    1e-6
}
fn hc_mult() -> usize {
    4
}
fn hc_sinkhorn_iters() -> usize {
    20
}
fn hc_eps() -> f32 {
    1e-6
}
fn index_n_heads() -> usize {
    64
}
fn index_head_dim() -> usize {
    128
}
fn index_topk() -> usize {
    512
}

const SPARSE: &str = "compressed_sparse_attention";
const HEAVY: &str = "heavily_compressed_attention";

/// What a layer attends to besides its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerType {
    /// Nothing.
    Sliding,
    /// The best entries of overlapping runs.
    Sparse,
    /// All entries of long runs.
    Heavy,
}

impl FamilyConfig for Config {
    fn validate(&self) -> Result<(), ModelError> {
        self.validate_sizes()?;
        self.validate_kinds()?;
        self.rope.validate(self.head_dim)?;
        let rotated = self.rope.rotated(self.head_dim);
        let selects = self.layer_types()?.contains(&LayerType::Sparse);
        let fits = !selects || rotated <= self.index_head_dim;
        require(fits, "index_head_dim", format!("at least {rotated}"), self.index_head_dim)
    }
}

impl Config {
    pub(super) fn layer_types(&self) -> Result<Vec<LayerType>, ModelError> {
        if let Some(names) = &self.layer_types {
            let kind = |name: &String| match name.as_str() {
                "sliding_attention" => Ok(LayerType::Sliding),
                SPARSE => Ok(LayerType::Sparse),
                HEAVY => Ok(LayerType::Heavy),
                other => {
                    Err(wrong_value("layer_types", format!("sliding_attention, {SPARSE} or {HEAVY}"), other))
                }
            };
            return names.iter().map(kind).collect();
        }
        if let Some(ratios) = &self.compress_ratios {
            let kind = |&ratio: &usize| match ratio {
                0 => Ok(LayerType::Sliding),
                ratio if ratio == self.rate(SPARSE) => Ok(LayerType::Sparse),
                ratio if ratio == self.rate(HEAVY) => Ok(LayerType::Heavy),
                ratio => {
                    let expected = format!("0, {} or {}", self.rate(SPARSE), self.rate(HEAVY));
                    Err(wrong_value("compress_ratios", expected, ratio))
                }
            };
            // The list goes on with the layers of the draft head.
            return ratios.iter().take(self.num_hidden_layers).map(kind).collect();
        }
        let kind = |i| if i < 2 || i % 2 == 0 { LayerType::Heavy } else { LayerType::Sparse };
        Ok((0..self.num_hidden_layers).map(kind).collect())
    }

    /// For each layer whether a table of token ids chooses its experts.
    pub(super) fn hashed_layers(&self) -> Result<Vec<bool>, ModelError> {
        let Some(names) = &self.mlp_layer_types else {
            let hashed = self.num_hash_layers.unwrap_or(3);
            return Ok((0..self.num_hidden_layers).map(|i| i < hashed).collect());
        };
        let hashed = |name: &String| match name.as_str() {
            "hash_moe" => Ok(true),
            "moe" => Ok(false),
            other => Err(wrong_value("mlp_layer_types", "hash_moe or moe", other)),
        };
        names.iter().map(hashed).collect()
    }

    /// Tokens of a run in layers of this kind.
    fn rate(&self, kind: &str) -> usize {
        let given = self.compress_rates.as_ref().and_then(|rates| rates.get(kind));
        given.copied().unwrap_or(if kind == SPARSE { 4 } else { 128 })
    }

    pub(super) fn attention(&self) -> SharedKeySizes {
        SharedKeySizes {
            hidden: self.hidden_size,
            heads: self.num_attention_heads,
            head_dim: self.head_dim,
            query_rank: self.q_lora_rank,
            span: self.sliding_window,
            output_groups: self.o_groups,
            output_rank: self.o_lora_rank,
        }
    }

    /// The compressor of a layer, if it has one.
    pub(super) fn compressor(&self, kind: LayerType) -> Option<CompressorSizes> {
        let sizes = |kind, overlaps| CompressorSizes {
            hidden: self.hidden_size,
            width: self.head_dim,
            rate: self.rate(kind),
            overlaps,
        };
        match kind {
            LayerType::Sliding => None,
            LayerType::Sparse => Some(sizes(SPARSE, true)),
            LayerType::Heavy => Some(sizes(HEAVY, false)),
        }
    }

    /// The index of a layer, if it has one.
    pub(super) fn index(&self, kind: LayerType) -> Option<EntryIndexSizes> {
        (kind == LayerType::Sparse).then_some(EntryIndexSizes {
            heads: self.index_n_heads,
            head_dim: self.index_head_dim,
            top: self.index_topk,
        })
    }

    pub(super) fn moe(&self) -> ScoredMoeSizes {
        ScoredMoeSizes {
            hidden: self.hidden_size,
            experts: self.n_routed_experts,
            experts_per_token: self.num_experts_per_tok,
            inner: self.moe_intermediate_size,
            shared_inner: self.moe_intermediate_size,
            routing: Routing::plain(RouterScore::SqrtSoftplus),
            scaling: self.routed_scaling_factor,
            limit: self.swiglu_limit,
        }
    }

    pub(super) fn streams(&self) -> ManifoldSizes {
        ManifoldSizes {
            streams: self.hc_mult,
            width: self.hidden_size,
            iterations: self.hc_sinkhorn_iters,
            eps: self.hc_eps,
            norm_eps: self.rms_norm_eps,
        }
    }

    fn validate_sizes(&self) -> Result<(), ModelError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("head_dim", self.head_dim),
            ("q_lora_rank", self.q_lora_rank),
            ("o_groups", self.o_groups),
            ("o_lora_rank", self.o_lora_rank),
            ("sliding_window", self.sliding_window),
            ("moe_intermediate_size", self.moe_intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("compress_rates", self.rate(SPARSE).min(self.rate(HEAVY))),
            ("hc_mult", self.hc_mult),
            ("hc_sinkhorn_iters", self.hc_sinkhorn_iters),
            ("index_n_heads", self.index_n_heads),
            ("index_topk", self.index_topk),
        ];
        require_positive(&sizes)?;
        let chosen = self.num_experts_per_tok;
        let experts = format!("1 to {}", self.n_routed_experts);
        require((1..=self.n_routed_experts).contains(&chosen), "num_experts_per_tok", experts, chosen)?;
        let (heads, groups) = (self.num_attention_heads, self.o_groups);
        require(heads % groups == 0, "num_attention_heads", format!("a multiple of {groups}"), heads)
    }

    fn validate_kinds(&self) -> Result<(), ModelError> {
        let layers = self.num_hidden_layers;
        let (attention, mlp) = (self.layer_types()?.len(), self.hashed_layers()?.len());
        let field = match (&self.layer_types, &self.compress_ratios) {
            (None, Some(_)) => "compress_ratios",
            _ => "layer_types",
        };
        require_entry_per_layer(field, attention, layers)?;
        require_entry_per_layer("mlp_layer_types", mlp, layers)?;
        for (field, actual, only) in
            [("hidden_act", &self.hidden_act, "silu"), ("scoring_func", &self.scoring_func, "sqrtsoftplus")]
        {
            require(actual == only, field, only, actual)?;
        }
        for (field, actual) in
            [("n_shared_experts", self.n_shared_experts), ("num_key_value_heads", self.num_key_value_heads)]
        {
            require(actual == 1, field, "1", actual)?;
        }
        require(!self.attention_bias, "attention_bias", "false", self.attention_bias)?;
        require(!self.mlp_bias, "mlp_bias", "false", self.mlp_bias)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(more: Value) -> Config {
        let mut all = json!({
            "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
            "q_lora_rank": 8, "o_groups": 2, "o_lora_rank": 8, "sliding_window": 8, "moe_intermediate_size": 16,
            "n_routed_experts": 4, "num_experts_per_tok": 2, "index_head_dim": 8, "qk_rope_head_dim": 4,
        });
        let Value::Object(more) = more else { panic!("not an object") };
        all.as_object_mut().unwrap().extend(more);
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn released_and_transformers_names_say_the_same() {
        let released = config(json!({"compress_ratios": [0, 4, 128, 4, 0], "num_hash_layers": 1}));
        let written = config(json!({
            "layer_types": ["sliding_attention", SPARSE, HEAVY, SPARSE],
            "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
        }));
        for config in [released, written] {
            config.validate().unwrap();
            let kinds = [LayerType::Sliding, LayerType::Sparse, LayerType::Heavy, LayerType::Sparse];
            assert_eq!(config.layer_types().unwrap(), kinds);
            assert_eq!(config.hashed_layers().unwrap(), [true, false, false, false]);
        }
    }

    #[test]
    fn what_the_arithmetic_cannot_do_is_refused_by_name() {
        for (wrong, field) in [
            (json!({"scoring_func": "softmax"}), "scoring_func"),
            (json!({"o_groups": 3}), "num_attention_heads"),
            (json!({"compress_ratios": [0, 5, 0, 0]}), "compress_ratios"),
            (json!({"layer_types": ["full_attention"]}), "layer_types"),
            (json!({"num_experts_per_tok": 5}), "num_experts_per_tok"),
            (json!({"index_head_dim": 2}), "index_head_dim"),
            (json!({"attention_bias": true}), "attention_bias"),
        ] {
            let error = config(wrong).validate().unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn lists_have_an_entry_for_each_layer() {
        for (wrong, list) in [
            (json!({"layer_types": [SPARSE]}), "layer_types has 1 entry"),
            (json!({"compress_ratios": [0, 4]}), "compress_ratios has 2 entries"),
            (json!({"mlp_layer_types": ["moe", "moe", "moe"]}), "mlp_layer_types has 3 entries"),
        ] {
            let error = config(wrong).validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: {list}, but num_hidden_layers is ")), "{error}");
        }
    }
}
