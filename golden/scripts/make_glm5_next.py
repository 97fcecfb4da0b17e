#!/usr/bin/env python3
"""Write the tiny glm5_next checkpoints with golden values, from transformers.

    python make_glm5_next.py OUT_DIR [--only NAME ...] [--search]

Each checkpoint of glm5_next.json becomes a folder with the usual Hugging Face files and
    golden.safetensors     ids [1,T] i32, logits [1,T,V] f32 (one uncached forward), decode_logits [1,T,V] f32 (prefill of
                           prefill_len [1] i32 tokens, then one token at a time with a cache), for some also
                           hidden.N [1,T,hc_mult*hidden_size] f32, the residual streams after layer N
    decisions.safetensors  routes.N [T,K] i32, selection.N [T,T] u8: see reference_glm5_next.py
All arithmetic is float32 on the CPU. For bf16 and quantised checkpoints the reference runs with the values that the stored
form stands for. Of equal scores the lower index wins: see lowest_index_topk.py.
"""

import argparse
import json
import pathlib
import tempfile

import torch
from safetensors.torch import load_file, save_file

import layouts_glm5_next as layouts
import manifest
import reference
import reference_glm5_next as glm
from make_qwen4_exp import PREFILL, SEEDS, SMALLEST_GAP, TOKENS, store_as, write

HERE = pathlib.Path(__file__).resolve().parent
# Cached and uncached logits of the reference itself. Its chunked form of the delta rule solves a triangular system, which
# costs a digit more than the recurrence; a checkpoint that loses more would leave too little of the tolerance.
CACHED_AGREES_WITHIN = 2e-5


def checkpoint(spec, settings, seed, scratch):
    """-> (files {name: (tensors, metadata)}, config); `scratch` becomes a directory that the reference loads"""
    store = getattr(torch, spec.get("store", "float32"))
    model = glm.new_model(settings, seed)
    model.trunk.save_pretrained(scratch)
    head = {glm.HEAD: model.head.to(store)}
    tensors = store_as(load_file(scratch / "model.safetensors"), store)
    config = json.loads((scratch / "config.json").read_text())
    config["dtype"] = spec.get("store", "float32")
    meant, metadata = tensors, {"format": "pt"}
    if spec.get("layout") == "released":
        parts, config = layouts.released(tensors | head, config)
        files = {name: (part, metadata) for name, part in parts.items()}
    elif spec.get("layout") == "modules":
        modules = {f"model.{n}": t.contiguous() for n, t in store_as(model.trunk.state_dict(), store).items()}
        files = {"model.safetensors": (modules | head, metadata)}
    elif affine := spec.get("affine"):
        stored, meant, config = layouts.quantized(tensors, config, affine["bits"], affine["group_size"], store)
        files = {"model.safetensors": (stored | head, {"format": "mlx"})}
    else:
        files = {"model.safetensors": (tensors, metadata), "model-head.safetensors": (head, metadata)}
    save_file(store_as(meant, torch.float32), scratch / "model.safetensors", metadata)
    save_file(store_as(head, torch.float32), scratch / "head.safetensors", metadata)
    return files, config


def attempt(spec, settings, seed):
    """One seed: -> (files, config, values, decisions, report, why the seed will not do or None)"""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        files, config = checkpoint(spec, settings, seed, scratch)
        model = glm.load(scratch, settings)
    ids = reference.prompt({**settings, "eos_token_id": 2}, spec.get("tokens", TOKENS), seed)
    values, decisions, ledger = glm.record(model, ids, spec.get("prefill", PREFILL), spec.get("keep_hidden", False))
    difference = float((values["decode_logits"] - values["logits"]).abs().max())
    report = {
        "seed": seed,
        "parameters": sum(p.numel() for p in model.trunk.parameters()) + model.head.numel(),
        "logits_std": round(float(values["logits"].std()), 3),
        "cached_vs_uncached": float(f"{difference:.1e}"),
    }
    return files, config, values, decisions, report, objection(ledger, difference)


def objection(ledger, difference):
    for kind, least in SMALLEST_GAP.items():
        if ledger.smallest_gap[kind] < least:
            return f"a {kind} hangs on a gap of {ledger.smallest_gap[kind]:.1e}"
    if difference > CACHED_AGREES_WITHIN:
        return f"cached and uncached logits differ by {difference:.1e}"
    return None


def make(name, spec, book, out, search):
    """The seed is part of the list, so that every machine makes the same checkpoint; `search` finds one for a new entry."""
    settings = {**book["defaults"], **spec.get("set", {})}
    for seed in range(SEEDS) if search else [spec.get("seed", 0)]:
        *parts, report, objection = attempt(spec, settings, seed)
        print(f"{name}: {json.dumps(report)}{' rejected: ' + objection if objection else ''}", flush=True)
        if not objection or not search:
            write(out / name, *parts)
            return
    raise SystemExit(f"{name}: no seed gives decisions clear enough")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--search", action="store_true", help="try seeds; put the one that is found into glm5_next.json")
    a = parser.parse_args()
    reference.quiet()
    torch.set_num_threads(1)
    book = json.loads((HERE / "glm5_next.json").read_text())
    for name, spec in book["checkpoints"].items():
        if not a.only or name in a.only:
            make(name, spec, book, a.out, a.search)
    manifest.write(
        a.out, "golden/scripts/make_glm5_next.py", "golden/glm5_next",
        manifest.installed("torch", "transformers", "safetensors", "numpy"),
    )


if __name__ == "__main__":
    main()
