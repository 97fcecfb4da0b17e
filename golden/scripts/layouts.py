"""Tensor names and config of the published layouts, from what transformers writes.

transformers   model.layers.N...., one tensor per expert and projection, flat config
released       model.language_model.layers.N...., packed experts, nested config, vision tensors beside it
mlx            language_model.model.layers.N...., stacked experts, other norms and convolutions, n-gram sidecar file
"""

import re

import torch

from affine import dequantize, quantize

EXPERT = re.compile(r"^(.*\.mlp)\.experts\.(\d+)\.(gate|up|down)_proj\.weight$")

# Zero-centred norms (the weight is added to one). The gated norm of the delta net is not one of them.
ZERO_CENTRED_NORMS = (
    ".q_norm.weight", ".k_norm.weight", ".q_layernorm.weight", ".k_layernorm.weight",
    ".hc_norm.weight", ".norm_key.weight", ".norm_query.weight", ".norm_conv.weight",
)

# What `quantize` leaves as it is, apart from everything that is not a matrix.
KEPT = (
    ".mlp.gate.weight", ".shared_expert_gate.weight", ".conv1d.weight", ".in_proj_a.weight", ".in_proj_b.weight",
    "input_mix_weight_down.weight", "input_mix_weight_up.weight", ".block_inject_weight.weight",
    ".ple.key_proj.weight", ".ple.value_proj.weight",
)

# The MLX recipe: 8 bits in groups of 64 for these, 4 bits in groups of 32 for other matrices.
MLX_EIGHT_BIT = (
    "embed_tokens", "lm_head", "linear_attn.out_proj", "mlp.gate", "shared_expert_gate", "shared_expert.gate_proj",
    "shared_expert.up_proj", "shared_expert.down_proj", "indexer.index_qk_proj",
)
MLX_KEPT = (
    "input_mix_weight_down", "input_mix_weight_up", "block_inject_weight", "ple.key_proj", "ple.value_proj", "conv1d",
)


def stack_experts(tensors):
    """-> (others, {(mlp prefix, projection): [E, out, in]})"""
    others, parts = {}, {}
    for name, tensor in tensors.items():
        if m := EXPERT.match(name):
            parts.setdefault((m[1], m[3]), {})[int(m[2])] = tensor
        else:
            others[name] = tensor
    return others, {key: torch.stack([p[i] for i in range(len(p))]) for key, p in parts.items()}


def nested(config, **outer):
    """The config of a multimodal checkpoint: the text settings inside, `full_attention` for layers with an indexer."""
    text = {k: v for k, v in config.items() if k not in ("architectures", "transformers_version", "number_of_conv_states")}
    text["layer_types"] = [t.replace("indexed", "full") for t in text["layer_types"]]
    return {
        "architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp",
        "tie_word_embeddings": text["tie_word_embeddings"], "text_config": text, **outer,
    }


def released(tensors, config):
    """-> ({file name: tensors}, config). The vision tensor is there to be skipped."""
    others, experts = stack_experts(tensors)
    out = {n.replace("model.", "model.language_model.", 1) if n.startswith("model.") else n: t for n, t in others.items()}
    for prefix in {p for p, _ in experts}:
        name = prefix.replace("model.", "model.language_model.", 1)
        out[f"{name}.experts.gate_up_proj"] = torch.cat([experts[prefix, "gate"], experts[prefix, "up"]], dim=1)
        out[f"{name}.experts.down_proj"] = experts[prefix, "down"]
    out["model.visual.patch_embed.proj.weight"] = torch.zeros(4, 3)
    names = sorted(out)
    half = len(names) // 2
    files = {
        "model-00001-of-00002.safetensors": {n: out[n].contiguous() for n in names[:half]},
        "model-00002-of-00002.safetensors": {n: out[n].contiguous() for n in names[half:]},
    }
    return files, nested(config, vision_config={"model_type": "qwen4_exp_vision"})


def quantized(tensors, config, bits, group, store):
    """The layout `ds4server quantize` writes: source names, `X.weight` packed, `X.scales` and `X.biases` beside it.

    -> (stored tensors, what they stand for under the source names, config)
    """
    stored, meant = {}, {}
    for name, tensor in tensors.items():
        keep = tensor.dim() != 2 or not name.endswith(".weight") or "ngram_embedding" in name or name.endswith(KEPT)
        if keep:
            stored[name], meant[name] = tensor, tensor
            continue
        packed, scales, biases = quantize(tensor, bits, group, store)
        base = name.removesuffix(".weight")
        stored |= {name: packed, f"{base}.scales": scales, f"{base}.biases": biases}
        meant[name] = dequantize(packed, scales, biases, bits, group)
    return stored, meant, {**config, "quantization": {"group_size": group, "bits": bits, "mode": "affine"}}


def mlx(tensors, config, store):
    """-> (model tensors, sidecar tensors and its metadata, what they stand for under the source names, config)"""
    others, experts = stack_experts(tensors)
    stored, meant, quantization = {}, dict(tensors), {"group_size": 32, "bits": 4, "mode": "affine"}
    shards = sorted((n for n in others if ".ngram_embedding.shard_" in n), key=lambda n: int(re.search(r"shard_(\d+)", n)[1]))
    table = torch.cat([others.pop(n) for n in shards])
    packed, scales, biases = quantize(table, 4, 32, torch.bfloat16)
    sidecar = {"ngram.weight": packed, "ngram.scales": scales, "ngram.biases": biases}
    metadata = {"ngram_bits": "4", "ngram_group_size": "32", "rows": str(table.shape[0]), "dim": str(table.shape[1])}
    for n, part in zip(shards, dequantize(packed, scales, biases, 4, 32).chunk(len(shards))):
        meant[n] = part.contiguous()

    def place(name, tensor):
        """-> the value that the stored form stands for"""
        module = name.removesuffix(".weight")
        if tensor.dim() < 2 or any(k in module for k in MLX_KEPT):
            stored[name] = tensor
            return tensor
        bits, group = (8, 64) if module.endswith(MLX_EIGHT_BIT) else (4, 32)
        if bits == 8:
            quantization[module] = {"group_size": group, "bits": bits}
        packed, scales, biases = quantize(tensor, bits, group, store)
        stored.update({name: packed, f"{module}.scales": scales, f"{module}.biases": biases})
        return dequantize(packed, scales, biases, bits, group)

    for name, tensor in others.items():
        target = "language_model." + name
        if name.endswith(ZERO_CENTRED_NORMS):
            # Adding one in bf16 rounds again, and the rounded sum is what counts.
            stored[target] = tensor + 1
            meant[name] = stored[target].float() - 1
        elif name.endswith("ple.conv1d.weight"):
            stored[target.replace("conv1d.weight", "conv_weight")] = tensor.movedim(2, 1).contiguous()
        elif name.endswith("linear_attn.conv1d.weight"):
            stored[target] = tensor.movedim(2, 1).contiguous()
        else:
            meant[name] = place(target, tensor)
    for (prefix, projection), tensor in experts.items():
        values = place(f"language_model.{prefix}.switch_mlp.{projection}_proj.weight", tensor)
        for i, value in enumerate(values):
            meant[f"{prefix}.experts.{i}.{projection}_proj.weight"] = value.contiguous()
    config = nested(config, quantization=quantization)
    config["text_config"]["ngram_sidecar"] = True
    config["mlx_lm_extra_tensors"] = {"ngram_file": "ngram-table.safetensors"}
    return stored, (sidecar, metadata), meant, config
