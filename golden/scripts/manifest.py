#!/usr/bin/env python3
"""Write MANIFEST.json of one golden folder: where its files come from and their checksums.

    python manifest.py golden/NAME --script SCRIPT --arguments "..." [--note TEXT] [--versions name=version ...]

`cargo xtask golden --check` verifies it. The makers in this folder call `write` themselves; the command line is for files
that were recorded elsewhere.
"""

import argparse
import hashlib
import importlib.metadata
import json
import pathlib

NAME = "MANIFEST.json"


def installed(*packages):
    return {p: importlib.metadata.version(p) for p in packages}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(folder, script, arguments, versions, note=None, inputs=(), root=None):
    """Lists every file below `folder`; `inputs` are files outside it (relative to `root`) that it depends on."""
    folder = pathlib.Path(folder)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != NAME)
    manifest = {"script": script, "arguments": arguments, "versions": versions}
    if note:
        manifest["note"] = note
    if inputs:
        manifest["inputs"] = {str(i): sha256(pathlib.Path(root) / i) for i in inputs}
    manifest["files"] = {p.relative_to(folder).as_posix(): sha256(p) for p in files}
    (folder / NAME).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--script", required=True)
    parser.add_argument("--arguments", default="")
    parser.add_argument("--note")
    parser.add_argument("--versions", nargs="*", default=[], metavar="NAME=VERSION")
    a = parser.parse_args()
    write(a.folder, a.script, a.arguments, dict(v.split("=", 1) for v in a.versions), a.note)


if __name__ == "__main__":
    main()
