#!/usr/bin/env python3
"""Record the discrete decisions of the bundled GLM demo checkpoint, from transformers.

    python make_glm5_next_demo.py OUT_DIR [--demo demo/glm5_next]

decisions.safetensors has routes.N and selection.N (see reference_glm5_next.py) for the ids of the demo's golden.safetensors.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import Glm5NextTextConfig, Glm5NextTextModel

import manifest
import reference
import reference_glm5_next as glm

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_demo(path):
    """The demo has one file; transformers loads the trunk from it and the head is taken beside."""
    settings = json.loads((path / "config.json").read_text())["text_config"]
    (file,) = path.glob("model-*.safetensors")
    trunk, info = Glm5NextTextModel.from_pretrained(
        path, config=Glm5NextTextConfig(**settings), dtype=torch.float32, attn_implementation="eager",
        experts_implementation="eager", output_loading_info=True,
    )
    if info["missing_keys"] or info["mismatched_keys"]:
        raise ValueError(f"the demo checkpoint does not fit: {info}")
    return glm.Model(trunk, load_file(file)[glm.HEAD].float())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--demo", type=pathlib.Path, default=ROOT / "demo/glm5_next")
    a = parser.parse_args()
    reference.quiet()
    torch.set_num_threads(1)
    model = load_demo(a.demo)
    golden = load_file(a.demo / "golden.safetensors")
    values, decisions, ledger = glm.record(model, golden["ids"].long(), int(golden["prefill_len"][0]))
    difference = float((values["logits"] - golden["logits"]).abs().max())
    print(json.dumps({"logits_vs_golden_file": difference, "smallest_gap": ledger.smallest_gap}))
    a.out.mkdir(parents=True, exist_ok=True)
    save_file(decisions, a.out / "decisions.safetensors")
    (a.out / "decisions.safetensors").chmod(0o644)
    inputs = sorted(p.relative_to(ROOT).as_posix() for p in a.demo.resolve().glob("*.safetensors"))
    manifest.write(
        a.out, "golden/scripts/make_glm5_next_demo.py", "golden/demo_glm5_next",
        manifest.installed("torch", "transformers", "safetensors", "numpy"), inputs=inputs, root=ROOT,
    )


if __name__ == "__main__":
    main()
