"""The reference model of glm5_next (transformers, float32, CPU) and what is recorded from it.

transformers has no text-only causal class for this family: the model is its trunk with a head of our own.
"""

import contextlib

import torch
from safetensors.torch import load_file
from transformers import Glm5NextTextConfig, Glm5NextTextModel
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextAttention

from lowest_index_topk import lowest_index_topk

HEAD = "lm_head.weight"


class Model:
    """A trunk and a head."""

    def __init__(self, trunk, head):
        self.trunk, self.head = trunk.eval(), head

    def __call__(self, ids, **kw):
        """-> (logits, cache)"""
        out = self.trunk(ids, **kw)
        return torch.nn.functional.linear(out.last_hidden_state, self.head), getattr(out, "cache", None)


def new_model(settings, seed):
    """Random weights large enough that every branch matters; norms and biases are perturbed, not constant."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = Glm5NextTextConfig(**settings)
    config._attn_implementation = "eager"
    trunk = Glm5NextTextModel(config)
    head = torch.empty(config.vocab_size, config.hidden_size)
    named = [*trunk.named_parameters(), *((n, b) for n, b in trunk.named_buffers() if "correction_bias" in n), (HEAD, head)]
    with torch.no_grad():
        for name, p in named:
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("A_log"):
                p.copy_(torch.rand(p.shape, generator=generator) * 2 - 1)
            elif p.dim() == 1:
                p.add_(noise * 0.1)
            elif "conv" in name:
                p.copy_(noise * 0.3)
            elif name.endswith("compress_ape"):
                p.copy_(noise)
            else:
                p.copy_(noise * (gain(name) / p.shape[-1] ** 0.5))
    return Model(trunk, head)


def gain(name):
    """Head, router and indexer get a wider spread: logits of about one, and decisions that differ from token to token."""
    return 1.0 if "lm_head" in name else 1.5 if "mlp.gate." in name or "indexer" in name else 0.6


def load(path, settings):
    """A directory with the trunk as transformers saves it, and the head in a file of its own; float32 arithmetic."""
    trunk, info = Glm5NextTextModel.from_pretrained(
        path, config=Glm5NextTextConfig(**settings), dtype=torch.float32, attn_implementation="eager",
        experts_implementation="eager", output_loading_info=True,
    )
    problems = {k: v for k, v in info.items() if k in ("missing_keys", "mismatched_keys", "unexpected_keys") and v}
    if problems:
        raise ValueError(f"{path} does not fit the model class: {problems}")
    return Model(trunk, load_file(path / "head.safetensors")[HEAD])


@torch.no_grad()
def record(model, ids, prefill, keep_hidden=False):
    """-> (values, decisions, ledger): tensors for golden.safetensors, for decisions.safetensors, and what top-k met."""
    with lowest_index_topk() as ledger:
        decisions, hidden = {}, []
        hooks = watch(model.trunk, decisions)
        for layer in model.trunk.layers:
            hooks.append(layer.register_forward_hook(lambda _m, _a, out: hidden.append(out[0])))
        with selections(decisions):
            logits, _ = model(ids, use_cache=False)
        for hook in hooks:
            hook.remove()
        parts = list(cached(model, ids, prefill))
    values = {
        "ids": ids.int(),
        "logits": logits.float().contiguous(),
        "decode_logits": torch.cat(parts, 1).float().contiguous(),
        "prefill_len": torch.tensor([prefill], dtype=torch.int32),
    }
    if keep_hidden:
        values |= {f"hidden.{i}": h.float().flatten(2).contiguous() for i, h in enumerate(hidden)}
    return values, decisions, ledger


def cached(model, ids, prefill):
    """Logits of the prefill, then of each further token."""
    tokens = ids.shape[1]
    if "indexed_attention" not in model.trunk.config.layer_types:
        # The reference cannot count cached tokens without an attention layer: run each prefix anew.
        yield model(ids[:, :prefill], use_cache=False)[0]
        for at in range(prefill, tokens):
            yield model(ids[:, : at + 1], use_cache=False)[0][:, -1:]
        return
    logits, cache = model(ids[:, :prefill], use_cache=True)
    yield logits
    for at in range(prefill, tokens):
        logits, cache = model(ids[:, at : at + 1], cache=cache, use_cache=True)
        yield logits


def watch(trunk, out):
    """Hooks that write routes.N [T, K] int32 into `out`: experts of layer N for each token, best first."""
    hooks = []
    for i, layer in enumerate(trunk.layers):
        if hasattr(layer.mlp, "gate"):
            def route(_m, _args, result, i=i):
                out[f"routes.{i}"] = result[2].int().contiguous()

            hooks.append(layer.mlp.gate.register_forward_hook(route))
    return hooks


@contextlib.contextmanager
def selections(out):
    """Inside the block, selection.N [T, T] uint8 is written into `out`: 1 where layer N lets a query (row) see a key."""
    real = Glm5NextTextAttention.build_attention_mask_from_topk

    def build(self, topk_indices, query_states, kv_length):
        mask = real(self, topk_indices, query_states, kv_length)
        out[f"selection.{self.layer_idx}"] = (mask[0, 0] == 0).to(torch.uint8).contiguous()
        return mask

    Glm5NextTextAttention.build_attention_mask_from_topk = build
    try:
        yield
    finally:
        Glm5NextTextAttention.build_attention_mask_from_topk = real
