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
        out[released_name(name)] = tensor
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


# Matrices that the released checkpoints store as E4M3 with a scale for 128 x 128 elements.
FP8 = (".wq_a.", ".wq_b.", ".attn.wkv.", ".wo_a.", ".wo_b.", ".shared_experts.")


def block_scaled(tensors, config, scheme):
    """The released names with E4M3 matrices and experts in packed E2M1.

    scheme "ue8m0": scales are powers of two, named X.scale, one for 32 elements of an expert's row;
    scheme "float": scales are float32, named X.weight_scale_inv, and E4M3 for 16 elements of an expert's row.
    -> (stored tensors, what they stand for under the source names, config)
    """
    stored, meant = {}, {}
    suffix = ".scale" if scheme == "ue8m0" else ".weight_scale_inv"
    for name, tensor in tensors.items():
        target = released_name(name)
        if ".experts." in name:
            codes, scales, meant[name] = quantize_fp4(tensor, 32 if scheme == "ue8m0" else 16, scheme)
        elif any(part in name for part in FP8) and tensor.dim() == 2:
            codes, scales, meant[name] = quantize_fp8(tensor, scheme)
        else:
            stored[target], meant[name] = tensor, tensor
            continue
        stored[target] = codes
        stored[target.removesuffix(".weight") + suffix] = scales
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    if scheme == "ue8m0":
        quantization["scale_fmt"] = "ue8m0"
    return stored, meant, {**older_config(config), "expert_dtype": "fp4", "quantization_config": quantization}


def released_name(name):
    name = name.removeprefix("model.").replace("embed_tokens.", "embed.").replace("hc_head.hc_", "hc_head_")
    return name.replace(".attn.norm.", ".attn.kv_norm.")


def scale_as(scale, scheme):
    """-> (scales as stored, their values)"""
    if scheme == "ue8m0":
        stored = torch.exp2(torch.ceil(torch.log2(scale))).to(torch.float8_e8m0fnu)
    else:
        stored = scale
    return stored, stored.float()


def quantize_fp8(tensor, scheme):
    """-> (codes, scales, the values they stand for)"""
    rows, columns = (-(-size // 128) for size in tensor.shape)
    padded = torch.zeros(rows * 128, columns * 128)
    padded[: tensor.shape[0], : tensor.shape[1]] = tensor
    blocks = padded.view(rows, 128, columns, 128)
    stored, scale = scale_as(blocks.abs().amax(dim=(1, 3)).clamp(min=1e-6) / 448, scheme)
    wide = scale[:, None, :, None]
    codes = (blocks / wide).to(torch.float8_e4m3fn)
    cut = lambda x: x.reshape(padded.shape)[: tensor.shape[0], : tensor.shape[1]].contiguous()
    return cut(codes), stored.contiguous(), cut(codes.float() * wide)


VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def quantize_fp4(tensor, group, scheme):
    """-> (two codes a byte, the first in the lower half; scales; the values they stand for)"""
    groups = tensor.float().reshape(tensor.shape[0], -1, group)
    scale = groups.abs().amax(-1).clamp(min=1e-6) / 6
    if scheme == "ue8m0":
        stored, scale = scale_as(scale, scheme)
    else:
        stored = scale.clamp(min=2.0**-9).to(torch.float8_e4m3fn)
        scale = stored.float()
    wanted = groups / scale[..., None]
    codes = (wanted.abs()[..., None] - VALUES).abs().argmin(-1)
    values = VALUES[codes] * torch.where(wanted < 0, -1.0, 1.0)
    codes = (codes + torch.where(wanted < 0, 8, 0)).reshape(tensor.shape).to(torch.uint8)
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).view(torch.int8)
    return packed.contiguous(), stored.contiguous(), (values * scale[..., None]).reshape(tensor.shape).contiguous()
