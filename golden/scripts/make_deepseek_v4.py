#!/usr/bin/env python3
"""Write the tiny deepseek_v4 checkpoints with golden values, from transformers.

    python make_deepseek_v4.py OUT_DIR [--only NAME ...] [--search]

Each checkpoint of deepseek_v4.json becomes a folder like those of make_qwen4_exp.py; what the decisions are is in
reference_deepseek_v4.watch. All arithmetic is float32 on the CPU; stored halves stand for their values.
"""

import argparse
import json
import pathlib
import tempfile

import torch
from safetensors.torch import load_file, save_file

import layouts_deepseek_v4 as layouts
import manifest
import reference
import reference_deepseek_v4 as family
from make_qwen4_exp import PREFILL, SEEDS, TOKENS, objection, store_as, write

HERE = pathlib.Path(__file__).resolve().parent


def attempt(spec, settings, seed):
    """One seed: -> (files, config, values, decisions, report, why the seed will not do or None)"""
    store = getattr(torch, spec.get("store", "float32"))
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        family.new_model(settings, seed).save_pretrained(scratch)
        tensors = store_as(load_file(scratch / "model.safetensors"), store)
        config = json.loads((scratch / "config.json").read_text())
        meant, blocks = tensors, None
        if scheme := spec.get("block_scales"):
            blocks, meant, block_config = layouts.block_scaled(tensors, config, scheme)
        save_file(store_as(meant, torch.float32), scratch / "model.safetensors", {"format": "pt"})
        model = family.load(scratch)
    config["dtype"] = spec.get("store", "float32")
    metadata = {"format": "pt"}
    if blocks:
        files, config = {"model.safetensors": (blocks, metadata)}, {**block_config, "dtype": config["dtype"]}
    elif spec.get("layout") == "released":
        parts, config = layouts.released(tensors, config)
        files = {name: (part, metadata) for name, part in parts.items()}
    elif spec.get("layout") == "modules":
        files = {"model.safetensors": (layouts.modules(model, store), metadata)}
    else:
        files = {"model.safetensors": (tensors, metadata)}
    ids = family.prompt(settings, spec.get("tokens", TOKENS), seed)
    values, decisions, ledger = family.record(model, ids, spec.get("prefill", PREFILL), spec.get("keep_hidden", False))
    difference = float((values["decode_logits"] - values["logits"]).abs().max())
    report = {
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "logits_std": round(float(values["logits"].std()), 3),
        "largest_logit": round(float(values["logits"].abs().max()), 3),
        "cached_vs_uncached": float(f"{difference:.1e}"),
        "selections_cut_inside_a_tie": ledger.cut_inside_tie["selection"],
    }
    return files, config, values, decisions, report, objection(ledger, difference)


def make(name, spec, book, out, search):
    settings = {**book["defaults"], **spec.get("set", {})}
    for seed in range(SEEDS) if search else [spec.get("seed", 0)]:
        *parts, report, problem = attempt(spec, settings, seed)
        print(f"{name}: {json.dumps(report)}{' rejected: ' + problem if problem else ''}", flush=True)
        if not problem or not search:
            write(out / name, *parts)
            return
    raise SystemExit(f"{name}: no seed gives decisions clear enough")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--search", action="store_true", help="try seeds; put the one that is found into deepseek_v4.json")
    a = parser.parse_args()
    reference.quiet()
    torch.set_num_threads(1)
    book = json.loads((HERE / "deepseek_v4.json").read_text())
    for name, spec in book["checkpoints"].items():
        if not a.only or name in a.only:
            make(name, spec, book, a.out, a.search)
    manifest.write(
        a.out, "golden/scripts/make_deepseek_v4.py", "golden/deepseek_v4",
        manifest.installed("torch", "transformers", "safetensors", "numpy"),
    )


if __name__ == "__main__":
    main()
