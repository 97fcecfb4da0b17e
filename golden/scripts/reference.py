"""The reference model (transformers, float32, CPU) and what is recorded from it."""

import torch
import transformers
from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

from lowest_index_topk import lowest_index_topk


def new_model(settings, seed):
    """A model with random weights large enough that every branch matters; norms and biases are perturbed, not constant."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = Qwen4ExpTextConfig(**settings)
    config._attn_implementation = "eager"
    model = Qwen4ExpForCausalLM(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("A_log"):
                p.copy_(torch.rand(p.shape, generator=generator) * 2 - 1)
            elif p.dim() == 1:
                p.add_(noise * 0.1)
            elif "conv" in name:
                p.copy_(noise * 0.3)
            else:
                p.copy_(noise * (gain(name) / p.shape[-1] ** 0.5))
    return model


def gain(name):
    """Head and router get a wider spread: logits of about one, and routes that differ from token to token."""
    return 1.8 if "lm_head" in name else 1.5 if "mlp.gate." in name else 0.6


def prompt(settings, tokens, seed):
    """Random ids with a repetition (so that n-grams come back) and end-of-text tokens at awkward places."""
    generator = torch.Generator().manual_seed(seed + 1)
    eos = settings.get("eos_token_id")
    eos = eos[0] if isinstance(eos, list) else eos
    ids = torch.randint(3, settings["vocab_size"], (1, tokens), generator=generator)
    ids[0, 24 : tokens // 2] = ids[0, : tokens // 2 - 24].clone()
    for at in (20, 21, 43, tokens - 6):
        ids[0, at] = eos
    return ids


def load(path):
    """A checkpoint directory in the transformers layout; stored values, float32 arithmetic."""
    model, info = Qwen4ExpForCausalLM.from_pretrained(
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
        parts = list(cached(model, ids, prefill))
    values = {
        "ids": ids.int(),
        "logits": whole.logits.float().contiguous(),
        "decode_logits": torch.cat(parts, 1).float().contiguous(),
        "prefill_len": torch.tensor([prefill], dtype=torch.int32),
    }
    if keep_hidden:
        for i, h in enumerate(whole.hidden_states[1:]):
            values[f"hidden.{i}"] = h.float().flatten(2).contiguous()
    return values, decisions, ledger


def cached(model, ids, prefill):
    """Logits of the prefill, then of each further token."""
    tokens = ids.shape[1]
    if "indexed_attention" not in model.config.layer_types:
        # The reference cannot count cached tokens without an attention layer: run each prefix anew.
        yield model(ids[:, :prefill], use_cache=False).logits
        for at in range(prefill, tokens):
            yield model(ids[:, : at + 1], use_cache=False).logits[:, -1:]
        return
    step = model(ids[:, :prefill], use_cache=True)
    yield step.logits
    for at in range(prefill, tokens):
        step = model(ids[:, at : at + 1], cache=step.cache, use_cache=True)
        yield step.logits


def watch(model, out):
    """Hooks that write the discrete decisions of a forward pass into `out`:

    routes.N     [T, K] int32  experts of layer N for each token, most probable first
    selection.N  [T, T] uint8  1 where layer N lets query (row) attend to key (column): selected and not in the future
    ngram_ids.N  [T, heads] int64  rows of the n-gram table that layer N reads for each token
    """
    hooks = []
    for i, layer in enumerate(model.model.layers):
        def route(_m, _args, result, i=i):
            out[f"routes.{i}"] = result[2].int().contiguous()

        hooks.append(layer.mlp.gate.register_forward_hook(route))
        if hasattr(layer, "self_attn"):
            def selection(_m, _args, mask, i=i):
                out[f"selection.{i}"] = mask[0, 0].tril().to(torch.uint8).contiguous()

            hooks.append(layer.self_attn.indexer.register_forward_hook(selection))
        if layer.ple is not None:
            def ngrams(_m, args, i=i):
                out[f"ngram_ids.{i}"] = args[0][0].long().contiguous()

            hooks.append(layer.ple.ple_embedding.ngram_embedding.register_forward_pre_hook(ngrams))
    return hooks


def quiet():
    """Progress bars and the notes on missing GPU kernels say nothing about a golden."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
