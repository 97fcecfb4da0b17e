//! Which weights are not quantised, and why: names of all families.

/// Parts of a tensor's dotted name that mark a weight to be kept as it is.
const KEPT_PARTS: [&str; 21] = [
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
    // What makes compressed entries of keys, and weighs the heads of an indexer: selections follow from both.
    "compressor",
    "weights_proj",
    // Decay, write strength and output gate of Kimi delta attention: low-rank or a row a head.
    "f_a_proj",
    "f_b_proj",
    "b_proj",
    "g_proj",
    "g_a_proj",
    "g_b_proj",
    // The image encoder is not run, so it is only handed on.
    "visual",
];

// Besides: norms, convolutions whatever their prefix, and the mixing of streams that is named `hc_...`.

/// Whether the tensor `name` loses too much, or gains too little, when quantised.
pub fn keeps_precision(name: &str) -> bool {
    // Norm weights have many names (`hc_norm`, `q_layernorm`, `norm_key`), all with this in it.
    let is_kept = |part: &str| {
        KEPT_PARTS.contains(&part)
            || part.contains("norm")
            || part.starts_with("hc_")
            || part.ends_with("conv1d")
    };
    name.split('.').any(is_kept)
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
            "layers.3.hc_attn_fn",
            "layers.3.attn.compressor.wkv.weight",
            "layers.3.attn.indexer.wq_b.weight",
            "layers.3.ffn.gate.weight",
            "model.language_model.layers.2.self_attn.k_conv1d.weight",
            "model.language_model.layers.2.self_attn.f_a_proj.weight",
            "model.language_model.layers.2.self_attn.b_proj.weight",
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
            "layers.3.attn.wq_b.weight",
            "layers.3.ffn.experts.5.w1.weight",
            "model.language_model.layers.2.self_attn.kv_b_proj.weight",
        ] {
            assert!(!keeps_precision(name), "{name}");
        }
    }
}
