//! The fields of `config.json` that the family uses, with the family's defaults, and what they must fulfil.

use ds4_layers::{
    IndexerSizes, KimiDeltaSizes, LatentSizes, ManifoldSizes, RouterScore, Routing, ScoredMoeSizes,
};
use serde::Deserialize;

use crate::ModelError;
use crate::config_checks::{require, require_entry_per_layer, require_positive, wrong_value};
use crate::registry::FamilyConfig;

/// Tokens between two attention layers, and dense layers at the start, where the file does not list kinds.
const ATTENTION_INTERVAL: usize = 4;
const DENSE_LAYERS: usize = 3;

/// Least logarithm of a decay where the file does not say.
const LOWER_BOUND: f32 = -5.0;

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    moe_intermediate_size: usize,
    pub(super) num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    n_shared_experts: usize,
    n_routed_experts: usize,
    num_experts_per_tok: usize,
    n_group: usize,
    topk_group: usize,
    norm_topk_prob: bool,
    routed_scaling_factor: f32,
    kv_lora_rank: usize,
    q_lora_rank: usize,
    qk_nope_head_dim: usize,
    qk_rope_head_dim: usize,
    v_head_dim: usize,
    attention_bias: bool,
    hidden_act: String,
    pub(super) swiglu_limit: f32,
    pub(super) max_position_embeddings: usize,
    pub(super) rms_norm_eps: f32,
    pub(super) tie_word_embeddings: bool,
    layer_types: Option<Vec<String>>,
    mlp_layer_types: Option<Vec<String>>,
    indexer_types: Option<Vec<String>>,
    index_topk_pattern: Option<Pattern>,
    index_topk_freq: usize,
    index_skip_topk_offset: usize,
    index_topk: usize,
    index_head_dim: usize,
    index_n_heads: usize,
    index_kpool: usize,
    index_kpool_always_select_tail: bool,
    linear_head_dim: usize,
    linear_num_heads: usize,
    linear_conv_kernel_dim: usize,
    linear_lower_bound: Option<f32>,
    linear_attn_config: Option<LinearAttention>,
    pub(super) hc_mult: usize,
    hc_eps: f32,
    hc_sinkhorn_iters: usize,
}

/// Settings of the delta layers in the form of released files; they go before those beside it.
#[derive(Clone, Debug, Deserialize)]
struct LinearAttention {
    head_dim: Option<usize>,
    num_heads: Option<usize>,
    short_conv_kernel_size: Option<usize>,
    #[serde(default = "not_given")]
    gate_lower_bound: Given,
    #[serde(default = "yes")]
    safe_gate: bool,
}

/// A number, null, or nothing at all.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "Option<f32>")]
enum Given {
    Value(Option<f32>),
    Nothing,
}

impl From<Option<f32>> for Given {
    fn from(value: Option<f32>) -> Self {
        Self::Value(value)
    }
}

fn not_given() -> Given {
    Given::Nothing
}

fn yes() -> bool {
    true
}

/// Which layers have an indexer: a letter each, or a word each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Pattern {
    Letters(String),
    Words(Vec<String>),
}

impl Default for Config {
    /// The family's defaults: GLM 5.3 Flash itself.
    fn default() -> Self {
        Self {
            vocab_size: 154_880,
            hidden_size: 4096,
            intermediate_size: 12_288,
            moe_intermediate_size: 2048,
            num_hidden_layers: 45,
            num_attention_heads: 64,
            num_key_value_heads: None,
            n_shared_experts: 1,
            n_routed_experts: 288,
            num_experts_per_tok: 8,
            n_group: 1,
            topk_group: 1,
            norm_topk_prob: true,
            routed_scaling_factor: 2.5,
            kv_lora_rank: 512,
            q_lora_rank: 1536,
            qk_nope_head_dim: 256,
            qk_rope_head_dim: 0,
            v_head_dim: 256,
            attention_bias: false,
            hidden_act: "silu".to_owned(),
            swiglu_limit: 10.0,
            max_position_embeddings: 1 << 20,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: false,
            layer_types: None,
            mlp_layer_types: None,
            indexer_types: None,
            index_topk_pattern: None,
            index_topk_freq: 1,
            index_skip_topk_offset: 2,
            index_topk: 2048,
            index_head_dim: 128,
            index_n_heads: 32,
            index_kpool: 16,
            index_kpool_always_select_tail: true,
            linear_head_dim: 128,
            linear_num_heads: 64,
            linear_conv_kernel_dim: 4,
            linear_lower_bound: Some(LOWER_BOUND),
            linear_attn_config: None,
            hc_mult: 4,
            hc_eps: 1e-6,
            hc_sinkhorn_iters: 20,
        }
    }
}

/// Kind of a layer's token mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerType {
    /// Kimi delta attention.
    Linear,
    /// Latent attention, with an indexer or with the selection of the last layer that has one.
    Attention { own_indexer: bool },
}

impl FamilyConfig for Config {
    fn validate(&self) -> Result<(), ModelError> {
        let delta = self.delta();
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("max_position_embeddings", self.max_position_embeddings),
            ("linear_num_heads", delta.heads),
            ("linear_head_dim", delta.head_dim),
            ("linear_conv_kernel_dim", delta.conv_kernel),
            ("hc_mult", self.hc_mult),
            ("hc_sinkhorn_iters", self.hc_sinkhorn_iters),
        ];
        require_positive(&sizes)?;
        require(self.hidden_act == "silu", "hidden_act", "silu", &self.hidden_act)?;
        require(self.swiglu_limit > 0.0, "swiglu_limit", "above 0", self.swiglu_limit)?;
        let layers = self.num_hidden_layers;
        let (attention, mlp) = (self.layer_types()?, self.sparse_layers()?);
        for (field, listed) in [("layer_types", attention.len()), ("mlp_layer_types", mlp.len())] {
            require_entry_per_layer(field, listed, layers)?;
        }
        // Longer lists go on with the layers of the draft head.
        let field = if self.indexer_types.is_some() { "indexer_types" } else { "index_topk_pattern" };
        require_entry_per_layer(field, self.own_indexers()?.len().min(layers), layers)?;
        if mlp.contains(&true) {
            self.validate_experts()?;
        }
        match attention.iter().find(|&&kind| kind != LayerType::Linear) {
            Some(&first) => self.validate_attention(first),
            None => Ok(()),
        }
    }
}

impl Config {
    pub(super) fn layer_types(&self) -> Result<Vec<LayerType>, ModelError> {
        let own = self.own_indexers()?;
        let attention = |layer: usize| LayerType::Attention { own_indexer: own.get(layer) == Some(&true) };
        let Some(names) = &self.layer_types else {
            let is_attention = |layer: usize| layer % ATTENTION_INTERVAL == ATTENTION_INTERVAL - 1;
            let kind = |layer| if is_attention(layer) { attention(layer) } else { LayerType::Linear };
            return Ok((0..self.num_hidden_layers).map(kind).collect());
        };
        let kinds = names.iter().enumerate().map(|(layer, name)| match name.as_str() {
            "linear_attention" => Ok(LayerType::Linear),
            // Published checkpoints say "full_attention" for layers that have an indexer.
            "full_attention" | "indexed_attention" => Ok(attention(layer)),
            other => Err(wrong_value(
                "layer_types",
                "linear_attention, indexed_attention or full_attention",
                other,
            )),
        });
        kinds.collect()
    }

    /// For each layer whether it would select for itself, were it an attention layer.
    fn own_indexers(&self) -> Result<Vec<bool>, ModelError> {
        let own = |field, name: &str| match name {
            "full" | "F" => Ok(true),
            "shared" | "S" => Ok(false),
            other => Err(wrong_value(field, "full or shared", other)),
        };
        match (&self.indexer_types, &self.index_topk_pattern) {
            (Some(names), _) => names.iter().map(|name| own("indexer_types", name)).collect(),
            (None, Some(Pattern::Words(names))) => {
                names.iter().map(|name| own("index_topk_pattern", name)).collect()
            }
            (None, Some(Pattern::Letters(letters))) => {
                letters.chars().map(|letter| own("index_topk_pattern", &letter.to_string())).collect()
            }
            (None, None) => {
                let step = |layer: usize| (layer + 1).saturating_sub(self.index_skip_topk_offset);
                let own = |layer| step(layer).is_multiple_of(self.index_topk_freq.max(1));
                Ok((0..self.num_hidden_layers).map(own).collect())
            }
        }
    }

    /// For each layer whether it has experts.
    pub(super) fn sparse_layers(&self) -> Result<Vec<bool>, ModelError> {
        let Some(names) = &self.mlp_layer_types else {
            return Ok((0..self.num_hidden_layers).map(|layer| layer >= DENSE_LAYERS).collect());
        };
        let kinds = names.iter().map(|name| match name.as_str() {
            "dense" => Ok(false),
            "sparse" => Ok(true),
            other => Err(wrong_value("mlp_layer_types", "dense or sparse", other)),
        });
        kinds.collect()
    }

    pub(super) fn attention(&self) -> LatentSizes {
        LatentSizes {
            hidden: self.hidden_size,
            heads: self.num_attention_heads,
            query_rank: self.q_lora_rank,
            latent_rank: self.kv_lora_rank,
            key_dim: self.qk_nope_head_dim,
            value_dim: self.v_head_dim,
        }
    }

    pub(super) fn indexer(&self) -> IndexerSizes {
        IndexerSizes {
            heads: self.index_n_heads,
            head_dim: self.index_head_dim,
            budget: self.index_topk,
            block: self.index_kpool,
        }
    }

    pub(super) fn delta(&self) -> KimiDeltaSizes {
        let given = self.linear_attn_config.as_ref();
        let pick =
            |choose: fn(&LinearAttention) -> Option<usize>, beside| given.and_then(choose).unwrap_or(beside);
        let lower_bound = match given {
            None => self.linear_lower_bound,
            Some(given) => {
                let bound = match given.gate_lower_bound {
                    Given::Value(bound) => bound,
                    Given::Nothing => self.linear_lower_bound,
                };
                bound.or(given.safe_gate.then_some(LOWER_BOUND))
            }
        };
        KimiDeltaSizes {
            hidden: self.hidden_size,
            heads: pick(|given| given.num_heads, self.linear_num_heads),
            head_dim: pick(|given| given.head_dim, self.linear_head_dim),
            conv_kernel: pick(|given| given.short_conv_kernel_size, self.linear_conv_kernel_dim),
            lower_bound,
        }
    }

    pub(super) fn moe(&self) -> ScoredMoeSizes {
        ScoredMoeSizes {
            hidden: self.hidden_size,
            experts: self.n_routed_experts,
            experts_per_token: self.num_experts_per_tok,
            inner: self.moe_intermediate_size,
            shared_inner: self.moe_intermediate_size * self.n_shared_experts,
            routing: Routing {
                score: RouterScore::Sigmoid,
                groups: self.n_group,
                groups_per_token: self.topk_group,
                normalise: self.norm_topk_prob,
            },
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

    fn validate_experts(&self) -> Result<(), ModelError> {
        let (experts, groups, chosen) = (self.n_routed_experts, self.n_group, self.num_experts_per_tok);
        require(self.moe_intermediate_size > 0, "moe_intermediate_size", "at least 1", 0)?;
        require(self.n_shared_experts > 0, "n_shared_experts", "at least 1", 0)?;
        let divides = groups > 0 && experts > 0 && experts.is_multiple_of(groups);
        require(divides, "n_group", format!("a divisor of {experts}, the number of experts"), groups)?;
        let kept = self.topk_group;
        require((1..=groups).contains(&kept), "topk_group", format!("1 to {groups}"), kept)?;
        let large = kept == groups || experts / groups >= 2;
        require(large, "n_group", "such that a group has at least 2 experts", groups)?;
        let most = experts / groups * kept;
        require((1..=most).contains(&chosen), "num_experts_per_tok", format!("1 to {most}"), chosen)
    }

    fn validate_attention(&self, first: LayerType) -> Result<(), ModelError> {
        let sizes = [
            ("num_attention_heads", self.num_attention_heads),
            ("q_lora_rank", self.q_lora_rank),
            ("kv_lora_rank", self.kv_lora_rank),
            ("qk_nope_head_dim", self.qk_nope_head_dim),
            ("v_head_dim", self.v_head_dim),
            ("index_n_heads", self.index_n_heads),
            ("index_head_dim", self.index_head_dim),
            ("index_kpool", self.index_kpool),
        ];
        require_positive(&sizes)?;
        require(!self.attention_bias, "attention_bias", "false", self.attention_bias)?;
        require(self.qk_rope_head_dim == 0, "qk_rope_head_dim", "0", self.qk_rope_head_dim)?;
        let (heads, key_heads) = (self.num_attention_heads, self.num_key_value_heads);
        let key_heads = key_heads.unwrap_or(heads);
        require(key_heads == heads, "num_key_value_heads", heads.to_string(), key_heads)?;
        let (budget, pool) = (self.index_topk, self.index_kpool);
        let expected = format!("a multiple of index_kpool ({pool}), at least that");
        require(budget >= pool && budget.is_multiple_of(pool), "index_topk", expected, budget)?;
        // Without its tail a query at the start would see nothing at all.
        let tail = self.index_kpool_always_select_tail || pool == 1;
        require(tail, "index_kpool_always_select_tail", "true", self.index_kpool_always_select_tail)?;
        let selects = first == LayerType::Attention { own_indexer: true };
        require(selects, "indexer_types", "full in the first attention layer", "shared")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OWN: LayerType = LayerType::Attention { own_indexer: true };
    const SHARED: LayerType = LayerType::Attention { own_indexer: false };

    fn config(fields: Value) -> Config {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn an_empty_config_is_the_released_model() {
        let config = config(json!({}));
        config.validate().unwrap();
        let kinds = config.layer_types().unwrap();
        assert_eq!(kinds.iter().filter(|&&kind| kind == OWN).count(), 11);
        assert_eq!(kinds[..4], [LayerType::Linear, LayerType::Linear, LayerType::Linear, OWN]);
        assert_eq!(config.sparse_layers().unwrap()[..5], [false, false, false, true, true]);
    }

    #[test]
    fn indexers_can_be_listed_as_words_letters_or_steps() {
        let all = json!(["full_attention", "indexed_attention", "full_attention", "full_attention"]);
        for (fields, expected) in [
            (json!({"indexer_types": ["full", "shared", "shared", "full"]}), [OWN, SHARED, SHARED, OWN]),
            (json!({"index_topk_pattern": "FSFS"}), [OWN, SHARED, OWN, SHARED]),
            (json!({"index_topk_pattern": ["full", "full", "full", "shared"]}), [OWN, OWN, OWN, SHARED]),
            (json!({"index_topk_freq": 2}), [OWN, OWN, SHARED, OWN]),
        ] {
            let mut fields = fields;
            fields["layer_types"] = all.clone();
            fields["num_hidden_layers"] = json!(4);
            let config = config(fields);
            config.validate().unwrap();
            assert_eq!(config.layer_types().unwrap(), expected);
        }
    }

    #[test]
    fn the_bound_of_the_decay_has_two_homes() {
        let bound = |fields: Value| config(fields).delta().lower_bound;
        assert_eq!(bound(json!({})), Some(-5.0));
        assert_eq!(bound(json!({"linear_lower_bound": null})), None);
        assert_eq!(bound(json!({"linear_attn_config": {"gate_lower_bound": -2.0}})), Some(-2.0));
        assert_eq!(bound(json!({"linear_attn_config": {"gate_lower_bound": null}})), Some(-5.0));
        let free = json!({"gate_lower_bound": null, "safe_gate": false});
        assert_eq!(bound(json!({"linear_attn_config": free})), None);
        let beside = json!({"linear_lower_bound": -3.0, "linear_attn_config": {"num_heads": 2}});
        assert_eq!(bound(beside.clone()), Some(-3.0));
        assert_eq!(config(beside).delta().heads, 2);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (fields, field) in [
            (json!({"index_topk": 100}), "index_topk"),
            (json!({"qk_rope_head_dim": 64}), "qk_rope_head_dim"),
            (json!({"index_kpool_always_select_tail": false}), "index_kpool_always_select_tail"),
            (json!({"index_topk_freq": 4, "index_skip_topk_offset": 1}), "indexer_types"),
            (json!({"n_group": 7}), "n_group"),
            (json!({"n_group": 36, "topk_group": 0}), "topk_group"),
            (json!({"n_group": 144, "topk_group": 3}), "num_experts_per_tok"),
            (json!({"layer_types": ["recurrent"]}), "layer_types"),
            (json!({"mlp_layer_types": ["thin"]}), "mlp_layer_types"),
        ] {
            let error = config(fields.clone()).validate().unwrap_err();
            let named = matches!(&error, ModelError::ConfigValue { field: named, .. } if *named == field);
            assert!(named, "{fields}: {error}");
        }
    }

    #[test]
    fn lists_have_an_entry_for_each_layer() {
        for (fields, list) in [
            (json!({"layer_types": ["linear_attention"]}), "layer_types has 1 entry"),
            (json!({"mlp_layer_types": ["dense", "sparse"]}), "mlp_layer_types has 2 entries"),
            (json!({"indexer_types": ["full"]}), "indexer_types has 1 entry"),
            (json!({"index_topk_pattern": "FS"}), "index_topk_pattern has 2 entries"),
        ] {
            let error = config(fields).validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: {list}, but num_hidden_layers is ")), "{error}");
        }
    }
}
