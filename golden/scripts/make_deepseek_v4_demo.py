#!/usr/bin/env python3
"""Record the discrete decisions of the bundled DeepSeek demo checkpoint, from transformers.

    python make_deepseek_v4_demo.py OUT_DIR [--demo demo/deepseek_v4]

decisions.safetensors has routes.N and selection.N (see reference_deepseek_v4.watch) for the ids of the demo's
golden.safetensors. Its 115 tokens make fewer entries than may be selected: cuts are tested by the small checkpoints.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file

import manifest
import reference
import reference_deepseek_v4 as family

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--demo", type=pathlib.Path, default=ROOT / "demo/deepseek_v4")
    a = parser.parse_args()
    reference.quiet()
    torch.set_num_threads(1)
    golden = load_file(a.demo / "golden.safetensors")
    model = family.load(a.demo)
    values, decisions, ledger = family.record(model, golden["ids"].long(), int(golden["prefill_len"][0]))
    difference = float((values["logits"] - golden["logits"]).abs().max())
    print(json.dumps({"logits_vs_golden_file": difference, "smallest_gap": ledger.smallest_gap}))
    a.out.mkdir(parents=True, exist_ok=True)
    save_file(decisions, a.out / "decisions.safetensors")
    (a.out / "decisions.safetensors").chmod(0o644)
    inputs = sorted(p.relative_to(ROOT).as_posix() for p in a.demo.resolve().glob("*.safetensors"))
    manifest.write(
        a.out, "golden/scripts/make_deepseek_v4_demo.py", "golden/demo_deepseek_v4",
        manifest.installed("torch", "transformers", "safetensors", "numpy"), inputs=inputs, root=ROOT,
    )


if __name__ == "__main__":
    main()
