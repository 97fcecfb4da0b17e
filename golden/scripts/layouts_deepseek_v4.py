"""Tensor names and config of the published layouts of the DeepSeek family, from what transformers writes.

transformers   model.layers.N.attn.wq_a...., one tensor per expert and projection
released       layers.N.attn.wq_a...., embed, head, the older names of the config, draft head beside it
modules        model.layers.N.self_attn.q_a_proj...., fused experts: the names of transformers' modules
"""

import torch


def released(tensors, config):
    """-> ({file name: tensors}, config). The draft head's tensors are there to be skipped."""
    out = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("model.")
        name = name.replace("embed_tokens.", "embed.").replace("hc_head.hc_", "hc_head_")
        out[name.replace(".attn.norm.", ".attn.kv_norm.")] = tensor
    out["mtp.0.e_proj.weight"] = torch.zeros(4, 3)
    names = sorted(out)
    half = len(names) // 2
    files = {
        "model-00001-of-00002.safetensors": {n: out[n].contiguous() for n in names[:half]},
        "model-00002-of-00002.safetensors": {n: out[n].contiguous() for n in names[half:]},
    }
    return files, older_config(config)


def older_config(config):
    config = dict(config)
    rates = config["compress_rates"]
    ratio = {"sliding_attention": 0, **rates}
    # The list goes on with the draft layer.
    config["compress_ratios"] = [ratio[kind] for kind in config.pop("layer_types")] + [0]
    config["num_hash_layers"] = config.pop("mlp_layer_types").count("hash_moe")
    ropes = config.pop("rope_parameters")
    scaling = {k: v for k, v in ropes["compress"].items() if k not in ("rope_theta", "partial_rotary_factor", "attention_factor")}
    config["rope_scaling"] = {"type": scaling["rope_type"], **scaling}
    config.pop("partial_rotary_factor")
    config["num_nextn_predict_layers"] = 1
    return config


def modules(model, store):
    """-> tensors under the names of the reference's modules."""
    names = {k: v for k, v in model.state_dict().items() if not k.endswith("_inv_freq")}
    return {k: (v.to(store) if v.is_floating_point() else v).contiguous() for k, v in names.items()}
