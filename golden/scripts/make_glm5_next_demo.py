#!/usr/bin/env python3
"""Record the discrete decisions of the bundled GLM demo checkpoint, from transformers.

    python make_glm5_next_demo.py OUT_DIR [--demo demo/glm5_next]

decisions.safetensors has routes.N and selection.N (see reference_glm5_next.py) for the ids of the demo's golden.safetensors.
"""

import argparse
import json
import pathlib
import tempfile

import torch
from safetensors.torch import load_file, save_file

import manifest
import reference
import reference_glm5_next as glm

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = "model.language_model."


def load_demo(path):
    """The trunk without the prefix that only the class with pictures has, and the head beside it."""
    settings = json.loads((path / "config.json").read_text())["text_config"]
    (file,) = path.glob("model-*.safetensors")
    tensors = {name.removeprefix(PREFIX): tensor.float() for name, tensor in load_file(file).items()}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        save_file({glm.HEAD: tensors.pop(glm.HEAD)}, scratch / "head.safetensors")
        save_file(tensors, scratch / "model.safetensors", {"format": "pt"})
        return glm.load(scratch, settings)


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
