"""Tensor names and config of the layouts of glm5_next, from the trunk that transformers holds in memory.

saved       layers.N...., as transformers saves the trunk; the head in a file of its own
released    model.language_model.layers.N...., nested config, vision and draft-head tensors beside it
modules     model.layers.N...., the names of transformers' own modules: experts and convolutions in one tensor each
"""

import torch

from affine import dequantize, quantize

# What `quantize` leaves as it is, apart from everything that is not a matrix.
KEPT = (
    ".mlp.gate.weight", "conv1d.weight", ".b_proj.weight", ".f_a_proj.weight", ".f_b_proj.weight", ".g_a_proj.weight",
    ".g_b_proj.weight", "weights_proj.weight",
)


def nested(config):
    """The config of a multimodal checkpoint: the text settings inside, some of them in the form of the released file."""
    text = {k: v for k, v in config.items() if k not in ("architectures", "transformers_version", "indexer_types")}
    text["layer_types"] = [t.replace("indexed", "full") for t in text["layer_types"]]
    text["linear_attn_config"] = {
        "head_dim": text.pop("linear_head_dim"), "num_heads": text.pop("linear_num_heads"),
        "short_conv_kernel_size": text.pop("linear_conv_kernel_dim"), "gate_lower_bound": text.pop("linear_lower_bound"),
        "safe_gate": True,
    }
    return {
        "architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next", "tie_word_embeddings": False,
        "text_config": text, "vision_config": {"model_type": "glm5_next_vision"},
    }


def released(tensors, config):
    """-> ({file name: tensors}, config). The vision tensor and the layer behind the last are there to be skipped."""
    out = {n if n.startswith("lm_head") else f"model.language_model.{n}": t for n, t in tensors.items()}
    out["model.visual.patch_embed.proj.weight"] = torch.zeros(4, 3)
    out[f"model.language_model.layers.{config['num_hidden_layers']}.eh_proj.weight"] = torch.zeros(4, 3)
    names = sorted(out)
    half = len(names) // 2
    files = {
        "model-00001-of-00002.safetensors": {n: out[n].contiguous() for n in names[:half]},
        "model-00002-of-00002.safetensors": {n: out[n].contiguous() for n in names[half:]},
    }
    return files, nested(config)


def quantized(tensors, config, bits, group, store):
    """`X.weight` packed, `X.scales` and `X.biases` beside it -> (stored tensors, what they stand for, config)"""
    stored, meant = {}, {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or not name.endswith(".weight") or name.endswith(KEPT):
            stored[name], meant[name] = tensor, tensor
            continue
        packed, scales, biases = quantize(tensor, bits, group, store)
        base = name.removesuffix(".weight")
        stored |= {name: packed, f"{base}.scales": scales, f"{base}.biases": biases}
        meant[name] = dequantize(packed, scales, biases, bits, group)
    return stored, meant, {**config, "quantization": {"group_size": group, "bits": bits, "mode": "affine"}}
