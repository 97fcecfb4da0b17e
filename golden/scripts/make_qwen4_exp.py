#!/usr/bin/env python3
"""Write the tiny qwen4_exp checkpoints with golden values, from transformers.

    python make_qwen4_exp.py OUT_DIR [--only NAME ...] [--search]

Each checkpoint of qwen4_exp.json becomes a folder with the usual Hugging Face files and
    golden.safetensors     ids [1,T] i32, logits [1,T,V] f32 (one uncached forward), decode_logits [1,T,V] f32 (prefill of
                           prefill_len [1] i32 tokens, then one token at a time with a cache), for some also
                           hidden.N [1,T,hc_count*hidden_size] f32, the residual streams after layer N
    decisions.safetensors  routes.N, selection.N, ngram_ids.N: see reference.watch
All arithmetic is float32 on the CPU. For bf16, f16 and quantised checkpoints the reference runs with the values that the
stored form stands for. Of equal scores the lower index wins: see lowest_index_topk.py.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import load_file, save_file

import layouts
import manifest
import reference

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, PREFILL, SEEDS = 70, 41, 40
# A decision whose runner-up is nearer than this could turn with the rounding of another correct implementation.
SMALLEST_GAP = {"selection": 3e-5, "route": 1e-5}
# Cached and uncached logits of the reference itself. The n-gram gate takes a square root, so a gate near zero magnifies
# rounding; a checkpoint that meets one would leave too little of the tolerance to the implementation under test.
CACHED_AGREES_WITHIN = 1e-5


def settings_of(spec, book):
    settings = {**book["defaults"], **book["recipes"].get(spec.get("recipe"), {}), **spec.get("set", {})}
    return {k: v for k, v in settings.items() if k not in spec.get("unset", ())}


def store_as(tensors, dtype):
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}


def checkpoint(spec, settings, seed, scratch):
    """-> (files {name: (tensors, metadata)}, config, directory that the reference loads)"""
    store = getattr(torch, spec.get("store", "float32"))
    reference.new_model(settings, seed).save_pretrained(scratch)
    tensors = store_as(load_file(scratch / "model.safetensors"), store)
    config = json.loads((scratch / "config.json").read_text())
    config["dtype"] = spec.get("store", "float32")
    meant, metadata = tensors, {"format": "pt"}
    if spec.get("layout") == "released":
        parts, config = layouts.released(tensors, config)
        files = {name: (part, metadata) for name, part in parts.items()}
    elif spec.get("layout") == "mlx":
        stored, sidecar, meant, config = layouts.mlx(tensors, config, store)
        files = {"model.safetensors": (stored, {"format": "mlx"}), "ngram-table.safetensors": sidecar}
    elif affine := spec.get("affine"):
        stored, meant, config = layouts.quantized(tensors, config, affine["bits"], affine["group_size"], store)
        files = {"model.safetensors": (stored, {"format": "mlx"})}
    else:
        files = {"model.safetensors": (tensors, metadata)}
    save_file(store_as(meant, torch.float32), scratch / "model.safetensors", {"format": "pt"})
    return files, config, scratch


def attempt(spec, settings, seed):
    """One seed: -> (files, config, values, decisions, report, why the seed will not do or None)"""
    with tempfile.TemporaryDirectory() as scratch:
        files, config, directory = checkpoint(spec, settings, seed, pathlib.Path(scratch))
        model = reference.load(directory)
    ids = reference.prompt(settings, spec.get("tokens", TOKENS), seed)
    values, decisions, ledger = reference.record(
        model, ids, spec.get("prefill", PREFILL), spec.get("keep_hidden", False)
    )
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


def objection(ledger, difference):
    for kind, least in SMALLEST_GAP.items():
        if ledger.smallest_gap[kind] < least:
            return f"a {kind} hangs on a gap of {ledger.smallest_gap[kind]:.1e}"
    if difference > CACHED_AGREES_WITHIN:
        return f"cached and uncached logits differ by {difference:.1e}"
    return None


def write(folder, files, config, values, decisions):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    for name, (tensors, metadata) in files.items():
        save_file(tensors, folder / name, metadata)
    if len(files) > 1 and "model.safetensors" not in files:
        index = {"metadata": {}, "weight_map": {t: name for name, (part, _) in files.items() for t in sorted(part)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    save_file(values, folder / "golden.safetensors")
    save_file(decisions, folder / "decisions.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)


def make(name, spec, book, out, search):
    """The seed is part of the list, so that every machine makes the same checkpoint; `search` finds one for a new entry."""
    settings = settings_of(spec, book)
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
    parser.add_argument("--search", action="store_true", help="try seeds; put the one that is found into qwen4_exp.json")
    a = parser.parse_args()
    reference.quiet()
    torch.set_num_threads(1)
    book = json.loads((HERE / "qwen4_exp.json").read_text())
    for name, spec in book["checkpoints"].items():
        if not a.only or name in a.only:
            make(name, spec, book, a.out, a.search)
    manifest.write(
        a.out, "golden/scripts/make_qwen4_exp.py", "golden/qwen4_exp",
        manifest.installed("torch", "transformers", "safetensors", "numpy"),
    )


if __name__ == "__main__":
    main()
