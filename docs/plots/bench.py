#!/usr/bin/env python3
"""Plots what `ds4server bench --random FAMILY:SIZE --json` printed.

    python3 docs/plots/bench.py RESULT.json [RESULT.json ...] --out docs/plots/bench.svg

Left: tokens per second of every measure, with the range over the rounds. Right: which share of the machine's limits that is,
memory bandwidth and multiply-adds, both measured in the same run. Several files stand side by side. Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
# The same input makes the same file.
matplotlib.rcParams["svg.hashsalt"] = "ds4server"
import matplotlib.pyplot as plt

SIZES = ("tokens", "context", "rows", "sequences")
LABELS = {
    "prefill": "prefill {} tokens",
    "decode": "decode at {}",
    "verify": "verify {} rows",
    "batch": "decode {} at once",
}


def label(measure):
    size = next(measure[key] for key in SIZES if key in measure)
    return LABELS[measure["measure"]].format(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("bench.svg"))
    options = parser.parse_args()

    runs = [json.loads(path.read_text()) for path in options.results]
    names = list(dict.fromkeys(label(m) for run in runs for m in run["measures"]))
    height = 0.8 / len(runs)
    figure, (speed, share) = plt.subplots(1, 2, figsize=(11, 1.5 + 0.4 * len(names)), sharey=True)

    for i, run in enumerate(runs):
        measures = {label(m): m for m in run["measures"]}
        places = [n + height * (i - (len(runs) - 1) / 2) for n, name in enumerate(names) if name in measures]
        chosen = [measures[name] for name in names if name in measures]
        rates = [m["tokens_per_second"] for m in chosen]
        medians = [rate["median"] for rate in rates]
        below = [rate["median"] - rate["min"] for rate in rates]
        above = [rate["max"] - rate["median"] for rate in rates]
        speed.barh(places, medians, height, xerr=[below, above], label=run["model"], capsize=2)
        share.barh([p - height / 4 for p in places], [m["bandwidth_fraction"] for m in chosen], height / 2,
                   color="tab:blue", label="of memory bandwidth" if i == 0 else None)
        share.barh([p + height / 4 for p in places], [m["fma_fraction"] for m in chosen], height / 2,
                   color="tab:orange", label="of multiply-adds" if i == 0 else None)

    speed.set_yticks(range(len(names)), names)
    speed.invert_yaxis()
    speed.set_xlabel("tokens per second, median and range")
    speed.legend(fontsize="small")
    share.axvline(1, color="black", linewidth=0.8)
    share.set_xlabel("share of the machine's limit, measured in the same run")
    share.legend(fontsize="small")
    first = runs[0]
    figure.suptitle(f"{first['processor']}, {first['threads']} threads: "
                    f"{first['bandwidth_gbps']:.1f} GB/s, {first['fma_gflops']:.1f} GFLOP/s")
    figure.tight_layout()
    figure.savefig(options.out, metadata={"Date": None} if options.out.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
