//! Which weights of Qwen3.8 Flash Next (`qwen4_exp`) are not quantised, and why.

/// Parts of a tensor's dotted name that mark a weight to be kept as it is.
const KEPT_PARTS: [&str; 13] = [
    // The router: a small error changes which experts run, and it is tiny beside them.
    "gate",
    // One row that scales the whole shared expert.
    "shared_expert_gate",
    // The decay and write strength of the delta net: few rows, and the decay is exponentiated.
    "in_proj_a",
    "in_proj_b",
    "A_log",
    "dt_bias",
    // Depthwise convolutions have a handful of elements a row.
    "conv1d",
    // Mixing of the hyper-connection streams: small, and every later layer inherits its error.
    "input_mix_weight_down",
    "input_mix_weight_up",
    "block_inject_weight",
    // The indexer chooses key blocks by top-k: as with the router, the choice is discrete.
    "indexer",
    // Hash tables: their rows are read one by one from disk, where full precision costs no memory.
    "ple_embedding",
    // The image encoder is not run, so it is only handed on.
    "visual",
];

/// Whether the tensor `name` loses too much, or gains too little, when quantised.
pub fn keeps_precision(name: &str) -> bool {
    // Norm weights have many names (`hc_norm`, `q_layernorm`, `norm_key`), all with this in it.
    name.split('.').any(|part| KEPT_PARTS.contains(&part) || part.contains("norm"))
}

#[cfg(test)]
mod tests {
    use super::keeps_precision;

    #[test]
    fn small_and_sensitive_weights_are_kept() {
        for name in [
            "model.language_model.layers.0.mlp.gate.weight",
            "model.language_model.layers.0.mlp.shared_expert_gate.weight",
            "model.language_model.layers.0.linear_attn.in_proj_a.weight",
            "model.language_model.layers.0.linear_attn.conv1d.weight",
            "model.language_model.layers.0.linear_attn.A_log",
            "model.language_model.layers.1.ple.norm_conv.weight",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight",
            "model.language_model.layers.7.self_attn.indexer.index_qk_proj.weight",
            "model.language_model.hyper_connection_mixer.input_mix_weight_up.weight",
            "mtp.layers.0.attn_hyper_connection.block_inject_weight.weight",
            "model.visual.blocks.0.attn.qkv.weight",
        ] {
            assert!(keeps_precision(name), "{name}");
        }
    }

    #[test]
    fn the_bulk_of_the_model_is_quantised() {
        for name in [
            "lm_head.weight",
            "model.language_model.embed_tokens.weight",
            "model.language_model.layers.0.mlp.experts.gate_up_proj",
            "model.language_model.layers.0.mlp.experts.down_proj",
            "model.layers.0.mlp.experts.3.gate_proj.weight",
            "model.language_model.layers.0.mlp.shared_expert.gate_proj.weight",
            "model.language_model.layers.0.linear_attn.in_proj_qkv.weight",
            "model.language_model.layers.1.ple.key_proj.weight",
            "model.language_model.layers.7.self_attn.q_proj.weight",
            "mtp.fc_hidden.weight",
        ] {
            assert!(!keeps_precision(name), "{name}");
        }
    }
}
