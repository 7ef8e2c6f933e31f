#!/usr/bin/env python3
"""Checks that every selection of packages compiles the dependencies with the same features.

Otherwise `cargo build -p …` and `cargo build --workspace` compile them anew in turns. What makes the
features equal stands in the manifests of the workspace and of `proto`. Where cargo has no unit graph,
nothing is checked.
"""

import json
import os
import subprocess
import sys

from paths import ROOT


def features(*selection: str):
    """For each library that a selection compiles: its features."""
    run = subprocess.run(
        ["cargo", "build", "--locked", "--unit-graph", "-Zunstable-options", *selection],
        cwd=ROOT, env=os.environ | {"RUSTC_BOOTSTRAP": "1"}, capture_output=True)
    if run.returncode:
        return None
    found = {}
    for unit in json.loads(run.stdout)["units"]:
        if unit["mode"] == "build":
            key = (unit["pkg_id"], unit["target"]["name"])
            found.setdefault(key, set()).add(frozenset(unit["features"]))
    return found


def main() -> int:
    whole = features("--workspace")
    wrong = False
    for package in ("causeway-icd", "causewayd", "causeway-devmgr"):
        for (name, _), sets in (features("-p", package) or {}).items():
            more = sets - (whole or {}).get((name, _), sets)
            if more:
                wrong = True
                print(f"-p {package} compiles {name} with other features than --workspace; see proto/Cargo.toml")
    return 1 if wrong else 0


sys.exit(main())
