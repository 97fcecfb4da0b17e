"""The reference model of the DeepSeek family (transformers, float32, CPU) and what is recorded from it."""

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from lowest_index_topk import lowest_index_topk


def new_model(settings, seed):
    """A model with random weights large enough that every branch matters; norms and biases are perturbed, not constant."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = DeepseekV4Config(**settings)
    config._attn_implementation = "eager"
    model = DeepseekV4ForCausalLM(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("sinks"):
                p.copy_(noise)
            elif p.dim() == 1:
                p.add_(noise * 0.1)
            elif name.endswith("position_bias"):
                p.copy_(noise)
            else:
                p.copy_(noise * (gain(name) / p.shape[-1] ** 0.5))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(torch.randn(b.shape, generator=generator) * 0.2)
            elif name.endswith("tid2eid"):
                rows = [torch.randperm(config.n_routed_experts, generator=generator)[: b.shape[1]] for _ in range(b.shape[0])]
                b.copy_(torch.stack(rows))
    return model


def gain(name):
    """Head, router and the gates of compressors get a wider spread: decisions that differ from token to token."""
    if "lm_head" in name:
        return 1.8
    return 1.5 if "mlp.gate." in name or "compressor" in name else 0.6


def prompt(settings, tokens, seed):
    """Random ids with a repetition and end-of-text tokens at awkward places."""
    generator = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(3, settings["vocab_size"], (1, tokens), generator=generator)
    ids[0, 24 : tokens // 2] = ids[0, : tokens // 2 - 24].clone()
    for at in (20, 21, 43, tokens - 6):
        ids[0, at] = settings["eos_token_id"]
    return ids


def load(path):
    """A checkpoint directory; stored values, float32 arithmetic."""
    model, info = DeepseekV4ForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True
    )
    problems = {k: v for k, v in info.items() if k in ("missing_keys", "mismatched_keys", "unexpected_keys") and v}
    if problems:
        raise ValueError(f"{path} does not fit the model class: {problems}")
    return model.eval()


@torch.no_grad()
def record(model, ids, prefill, keep_hidden=False):
    """-> (values, decisions, ledger): tensors for golden.safetensors, for decisions.safetensors, and what top-k met."""
    with lowest_index_topk() as ledger:
        decisions = {}
        hooks = watch(model, decisions)
        whole = model(ids, use_cache=False, output_hidden_states=True)
        for hook in hooks:
            hook.remove()
        step = model(ids[:, :prefill], use_cache=True)
        parts = [step.logits]
        for at in range(prefill, ids.shape[1]):
            step = model(ids[:, at : at + 1], cache=step.cache, use_cache=True)
            parts.append(step.logits)
    values = {
        "ids": ids.int(),
        "logits": whole.logits.float().contiguous(),
        "decode_logits": torch.cat(parts, 1).float().contiguous(),
        "prefill_len": torch.tensor([prefill], dtype=torch.int32),
    }
    if keep_hidden:
        for i, h in enumerate(whole.hidden_states[1 : len(model.model.layers) + 1]):
            values[f"hidden.{i}"] = h.float().flatten(2).contiguous()
    return values, decisions, ledger


def watch(model, out):
    """Hooks that write the discrete decisions of a forward pass into `out`:

    routes.N     [T, K] int32  experts of layer N for each token: best first, or in the order of the table
    selection.N  [T, T] uint8  1 where the run of key (column) is complete and selected by query (row), or not complete yet
    """
    hooks = []
    for i, layer in enumerate(model.model.layers):
        def route(_m, _args, result, i=i):
            out[f"routes.{i}"] = result[2].int().contiguous()

        hooks.append(layer.mlp.gate.register_forward_hook(route))
        if hasattr(layer.self_attn.compressor, "indexer"):
            def selection(module, _args, ids, i=i):
                rate, tokens = module.compress_rate, ids.shape[1]
                seen = torch.zeros(tokens, tokens, dtype=torch.uint8)
                for query, chosen in enumerate(ids[0].tolist()):
                    for entry in (e for e in chosen if e >= 0):
                        seen[query, entry * rate : (entry + 1) * rate] = 1
                    seen[query, (query + 1) // rate * rate : query + 1] = 1
                out[f"selection.{i}"] = seen

            hooks.append(layer.self_attn.compressor.indexer.register_forward_hook(selection))
    return hooks
