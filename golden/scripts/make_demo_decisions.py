#!/usr/bin/env python3
"""Record the discrete decisions of the bundled demo checkpoint, from transformers.

    python make_demo_decisions.py OUT_DIR [--demo demo/qwen4_exp] [--long golden/mtplx_trunk/trunk.safetensors]

decisions.safetensors has routes.N, selection.N and ngram_ids.N (see reference.watch) for the ids of the demo's
golden.safetensors. With --long also, for the 1400 ids of the recorded receipts, which pass the selection budget:
    long.first_query  [1] i32        Q, the first query whose selection leaves blocks out
    long.blocks.N     [T-Q, B] u8    1 where layer N selects key block b for query Q + row; tails are not in it
    long.gap.N        [T-Q] f32      distance between the last score taken and the first one left, 0 inside a tie
Scores nearer than float32 rounding may fall either way in another correct implementation; the gap says which rows do.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

import manifest
import reference
from lowest_index_topk import lowest_index_topk

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_demo(path):
    text = json.loads((path / "config.json").read_text())["text_config"]
    model, info = Qwen4ExpForCausalLM.from_pretrained(
        path, config=Qwen4ExpTextConfig(**text), dtype=torch.float32, attn_implementation="eager",
        experts_implementation="eager", output_loading_info=True,
    )
    if info["missing_keys"] or info["mismatched_keys"]:
        raise ValueError(f"the demo checkpoint does not fit: {info}")
    return model.eval()


@torch.no_grad()
def long_decisions(model, ids):
    config = model.config
    ratio, budget, tokens = config.indexer_compress_ratio, config.indexer_budget, ids.shape[1]
    first = budget + ratio - 1  # here one block more is complete than the budget holds
    gaps = {}
    with lowest_index_topk() as ledger:
        real_note = ledger.note

        def note(values, k, kind):
            if kind == "selection" and k < values.shape[1]:
                gaps.setdefault(current[0], []).append(float(values[0, k - 1] - values[0, k]))
            real_note(values, k, kind)

        ledger.note, current, hooks, masks = note, [None], [], {}
        for i, layer in enumerate(model.model.layers):
            if hasattr(layer, "self_attn"):
                indexer = layer.self_attn.indexer
                hooks.append(indexer.register_forward_pre_hook(lambda *_, i=i: current.__setitem__(0, i)))
                hooks.append(indexer.register_forward_hook(lambda _m, _a, mask, i=i: masks.__setitem__(i, mask[0, 0])))
        model(ids, use_cache=False)
        for hook in hooks:
            hook.remove()
    out = {"long.first_query": torch.tensor([first], dtype=torch.int32)}
    for i, mask in masks.items():
        out[f"long.blocks.{i}"] = complete_blocks(mask[first:], first, ratio)
        out[f"long.gap.{i}"] = torch.tensor(gaps[i], dtype=torch.float32)
        assert len(gaps[i]) == tokens - first
    return out


def complete_blocks(mask, first, ratio):
    """Rows of a token mask -> rows of a block mask, without the always visible tail of each query."""
    rows, tokens = mask.shape
    blocks = mask[:, : tokens // ratio * ratio].reshape(rows, -1, ratio).all(-1).to(torch.uint8)
    for row in range(rows):
        blocks[row, (first + row + 1) // ratio :] = 0
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--demo", type=pathlib.Path, default=ROOT / "demo/qwen4_exp")
    parser.add_argument("--long", type=pathlib.Path, default=ROOT / "golden/mtplx_trunk/trunk.safetensors")
    a = parser.parse_args()
    reference.quiet()
    torch.set_num_threads(1)
    model = load_demo(a.demo)
    golden = load_file(a.demo / "golden.safetensors")
    values, decisions, ledger = reference.record(model, golden["ids"].long(), int(golden["prefill_len"][0]))
    difference = float((values["logits"] - golden["logits"]).abs().max())
    print(json.dumps({"logits_vs_golden_file": difference, "smallest_gap": ledger.smallest_gap}))
    decisions |= long_decisions(model, load_file(a.long)["long.ids"].long())
    for name in sorted(decisions):
        if ".gap." in name:
            gap = decisions[name]
            print(name, "ties", int((gap == 0).sum()), "of", len(gap), "smallest other", float(gap[gap > 0].min()))
    a.out.mkdir(parents=True, exist_ok=True)
    save_file(decisions, a.out / "decisions.safetensors")
    (a.out / "decisions.safetensors").chmod(0o644)
    inputs = sorted(p.relative_to(ROOT).as_posix() for p in [*a.demo.resolve().glob("*.safetensors"), a.long.resolve()])
    manifest.write(
        a.out, "golden/scripts/make_demo_decisions.py", "golden/demo",
        manifest.installed("torch", "transformers", "safetensors", "numpy"), inputs=inputs, root=ROOT,
    )


if __name__ == "__main__":
    main()
