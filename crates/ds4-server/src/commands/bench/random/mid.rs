//! Configurations of middle size: large enough that weights do not fit into a processor's caches, small enough to be made
//! in a few seconds. One entry a family; adding one here is all that a new family needs.

use serde_json::{Value, json};

/// A configuration by name.
type Entry = (&'static str, fn() -> Value);

const CONFIGS: &[Entry] =
    &[("qwen4_exp:mid", qwen4_exp), ("deepseek_v4:mid", deepseek_v4), ("glm5_next:mid", glm5_next)];

/// The `config.json` of this name.
pub(super) fn config(name: &str) -> Option<Value> {
    CONFIGS.iter().find(|(known, _)| *known == name).map(|(_, config)| config())
}

/// All names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CONFIGS.iter().map(|(name, _)| *name)
}

/// 0.87 B parameters.
fn qwen4_exp() -> Value {
    json!({
        "model_type": "qwen4_exp_text",
        "vocab_size": 49152,
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "full_attention_interval": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "tie_word_embeddings": false,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 256,
        "shared_expert_intermediate_size": 256,
        "hc_count": 4,
        "hc_lowrank": 160,
        "indexer_n_heads": 2,
        "indexer_head_dim": 128,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 4,
        "ple_layer_ids": [1],
        "ple_embed_dim": 1024,
        "ngram_size": 3,
        "heads_per_ngram": 8,
        "ngram_vocab_size_base": 40000,
        "make_ngram_vocab_size_divisible_by": 128,
        "eos_token_id": 0
    })
}

/// 0.72 B parameters.
fn deepseek_v4() -> Value {
    json!({
        "model_type": "deepseek_v4",
        "vocab_size": 49152,
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "qk_rope_head_dim": 64,
        "q_lora_rank": 512,
        "o_groups": 2,
        "o_lora_rank": 256,
        "sliding_window": 128,
        "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128],
        "index_n_heads": 4,
        "index_head_dim": 128,
        "index_topk": 512,
        "n_routed_experts": 64,
        "num_experts_per_tok": 6,
        "n_shared_experts": 1,
        "num_hash_layers": 2,
        "moe_intermediate_size": 256,
        "hc_mult": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 10000.0,
        "compress_rope_theta": 160000.0,
        "tie_word_embeddings": false,
        "eos_token_id": 0
    })
}

/// 0.63 B parameters.
fn glm5_next() -> Value {
    json!({
        "model_type": "glm5_next_text",
        "vocab_size": 49152,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "mlp_layer_types": dense_first(12),
        "num_attention_heads": 8,
        "q_lora_rank": 512,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 0,
        "v_head_dim": 128,
        "index_n_heads": 2,
        "index_head_dim": 128,
        "index_topk": 2048,
        "index_kpool": 16,
        "linear_num_heads": 16,
        "linear_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "n_routed_experts": 56,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "moe_intermediate_size": 256,
        "hc_mult": 4,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": false,
        "eos_token_id": 0
    })
}

/// One dense layer, then layers with experts.
fn dense_first(layers: usize) -> Vec<&'static str> {
    (0..layers).map(|layer| if layer == 0 { "dense" } else { "sparse" }).collect()
}
