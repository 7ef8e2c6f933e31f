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


# What etc/quickstart builds.
QUICKSTART = ["--no-default-features", "-p", "causewayd", "-p", "causeway-icd", "-p", "causeway-devmgr"]


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
    selections = [["-p", package] for package in ("causeway-icd", "causewayd", "causeway-devmgr")]
    for selection in [*selections, QUICKSTART]:
        for (package, name), sets in (features(*selection) or {}).items():
            # The quickstart compiles one package of the workspace in a smaller form: see devmgr/Cargo.toml.
            is_smaller = selection is QUICKSTART and "#causeway-devmgr@" in package
            more = sets - (whole or {}).get((package, name), sets)
            if more and not is_smaller:
                wrong = True
                print(f"{' '.join(selection)} compiles {name} with other features than --workspace; see proto/Cargo.toml")
    return 1 if wrong else 0


sys.exit(main())
