#!/usr/bin/env python3
"""Checks who depends on whom, under which licence, and from where.

The directions are those of ARCHITECTURE.md: between crates by cargo's own metadata, between the
modules of a crate by the paths they name. cargo-deny would check licences and sources as well, but
takes longer to build than the whole gate and fetches advisories from a network that CI lacks.
"""

import json
import pathlib
import subprocess
import sys

import paths
from paths import ROOT, code_of, module_of, paths_in

# Which of the workspace's crates each may name in [dependencies].
CRATES = {
    "causeway-proto": set(),
    "cl-headers": set(),
    "causeway-security": {"causeway-proto"},
    "causeway-serving": {"causeway-proto", "causeway-security"},
    "causeway-lane": {"causeway-proto", "causeway-security"},
    "causeway-links": {"causeway-proto", "causeway-security"},
    "causeway-managers": {"causeway-proto"},
    "causeway-discovery": set(),
    "causeway-confine": set(),
    "causeway-announcer": {"causeway-proto", "causeway-confine", "causeway-discovery", "causeway-serving"},
    "causeway-entry-point": set(),
    "causeway-trace": set(),
    "causeway-icd": {"causeway-proto", "causeway-discovery", "causeway-links", "causeway-managers", "causeway-security", "causeway-lane", "causeway-entry-point", "causeway-trace", "cl-headers"},
    "causeway-opencl": {"causeway-icd", "cl-headers"},
    "causewayd": {"causeway-proto", "causeway-announcer", "causeway-confine", "causeway-discovery", "causeway-links", "causeway-managers", "causeway-serving", "causeway-security", "causeway-lane"},
    "causeway-devmgr": {"causeway-proto", "causeway-announcer", "causeway-confine", "causeway-discovery", "causeway-links", "causeway-managers", "causeway-serving", "causeway-security", "causeway-icd", "causeway-trace", "cl-headers"},
    "causeway-network": set(),
    "causeway-cluster": {"causeway-managers", "causeway-proto", "causeway-security"},
    "causeway-cutter": {"causeway-proto"},
    "causeway-decoders": {"causeway-proto", "causeway-security", "causeway-serving", "causeway-lane", "causeway-icd",
                          "causewayd", "causeway-devmgr"},
    "conformance": {"causeway-managers", "causeway-proto", "causeway-icd", "causeway-network", "causeway-cluster", "causeway-cutter", "cl-headers", "fake-driver"},
    "fake-driver": {"cl-headers"},
    "bench": {"causeway-proto", "causeway-discovery", "causeway-links", "causeway-managers", "causeway-security", "causeway-icd", "causeway-network", "causeway-cluster", "causeway-cutter", "cl-headers"},
}

# What a module must not name, by folder below a crate's src: modules of its crate by their paths, crates by name.
# A list of pairs, because Python silently drops the first of two equal keys of a dict.
MODULES = [
    ("icd/src/stub", ["crate::api"]),
    ("icd/src/lease", ["crate::api", "crate::stub"]),
    ("icd/src/transport", ["crate::api", "crate::stub", "crate::lease"]),
    ("icd/src/coherence", ["crate::api", "crate::stub", "crate::lease", "crate::transport", "crate::config", "cl_headers"]),
    ("icd/src/config", ["crate::api", "crate::stub", "crate::lease", "crate::transport"]),
    ("devmgr/src/lease", ["crate::service", "crate::store", "crate::identity", "crate::settings", "tokio", "tonic",
                          "rand", "std::time", "std::net", "std::fs"]),
    ("devmgr/src/policy", ["crate::lease", "crate::service", "crate::store", "crate::identity", "crate::settings", "tokio", "tonic"]),
    ("devmgr/src/inventory", ["crate::lease", "crate::policy", "crate::service", "crate::store", "crate::identity",
                              "crate::settings", "tokio", "tonic"]),
    ("devmgr/src/store", ["crate::service", "crate::settings", "crate::etcd", "crate::leadership", "tokio", "tonic"]),
    ("devmgr/src/leadership", ["crate::service", "crate::store", "crate::settings", "crate::etcd", "crate::lease", "tokio",
                               "tonic", "rand", "std::time", "std::net", "std::fs"]),
    ("devmgr/src/etcd", ["crate::service", "crate::settings", "crate::lease"]),
    ("devmgr/src/dashboard", ["crate::service", "crate::store", "crate::etcd", "crate::leadership", "crate::lease", "crate::settings",
                              "crate::identity", "tokio", "tonic", "axum", "std::net", "std::fs", "std::time::Instant"]),
    ("devmgr/src/identity", ["crate::service", "crate::store", "crate::settings", "tokio", "tonic"]),
    ("daemon/src/accounting", ["crate::supervisor", "crate::worker", "crate::runtime"]),
    ("daemon/src/build_cache", ["crate::supervisor", "crate::worker", "crate::runtime"]),
    ("daemon/src/config", ["crate::runtime", "crate::supervisor", "crate::worker"]),
    ("daemon/src/handover", ["crate::supervisor", "crate::worker", "crate::runtime"]),
    ("daemon/src/runtime", ["crate::supervisor", "crate::worker", "crate::config"]),
    ("daemon/src/supervisor", ["crate::runtime", "crate::worker", "opencl_sys", "cl3"]),
    ("daemon/src/supervisor/managed", ["crate::supervisor::accept", "crate::supervisor::node_service",
                                       "crate::supervisor::watched", "crate::supervisor::stop"]),
    # In a worker: service -> session -> bulk -> objects.
    ("daemon/src/worker", ["opencl_sys", "cl3", "crate::supervisor"]),
    ("daemon/src/worker/confine", ["crate::runtime", "crate::worker::objects", "crate::worker::bulk",
                                   "crate::worker::session", "crate::worker::service"]),
    ("daemon/src/worker/objects", ["crate::worker::bulk", "crate::worker::session", "crate::worker::service"]),
    ("daemon/src/worker/bulk", ["crate::worker::session", "crate::worker::service", "crate::config"]),
    ("daemon/src/worker/session", ["crate::worker::service"]),
    ("daemon/src/worker/service", ["crate::worker::bulk", "crate::worker::objects", "crate::runtime"]),
    # Pure, and below everything.
    ("proto/trace/src", ["std::time", "std::net", "std::fs", "std::thread"]),
    ("icd/src/trace", ["crate::api", "crate::stub", "crate::lease", "crate::transport", "crate::config"]),
    ("proto/serving/src", ["opencl_sys", "cl_headers", "causeway_icd"]),
]

# The layers of folders whose modules are many, from the ground up: a module names those of its own line and of earlier
# lines. The folder's `mod.rs` is above them all.
LAYERS = {
    "daemon/src/runtime": [
        "library info ptx driver_files nvml clock stdout block finisher",
        "node identity",
        "context compute_mode",
        "buffer svm kernel sampler device_queue",
        "image pipe program pinned",
        "probe sub_device host",
        "event",
        "queue watch",
        "listen",
    ],
    "daemon/src/worker/bulk": [
        "allowance received_ranges blocks turns peers memory jobs",
        "message incoming",
        "outgoing early",
        "writer",
        "path",
        "engine",
        "transfer lane",
        "direct staged eager short checkpoint",
    ],
}

LICENCES = {"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib",
            "Unlicense", "CC0-1.0", "0BSD", "BSL-1.0", "MIT-0", "Apache-2.0 WITH LLVM-exception"}


def licensed(expression: str) -> bool:
    """Whether an SPDX expression can be met from LICENCES ("a OR b" needs one, "a AND b" both)."""
    expression = expression.replace("/", " OR ").replace("(", " ").replace(")", " ")
    return all(any(choice.strip() in LICENCES for choice in part.split(" OR "))
               for part in expression.split(" AND "))


def wrong_paths(file: pathlib.Path, forbidden: list[str]) -> list[str]:
    """What the file names of what its folder must not name."""
    return [f"{file.relative_to(ROOT)}:{line}: names {path}"
            for line, path in paths_in(code_of(file.read_text()), module_of(file.relative_to(ROOT)))
            for name in forbidden if path == name or path.startswith(name + "::")]


def wrong_layers(folder: str, lines: list[str]) -> list[str]:
    """What modules of the folder name of layers above their own."""
    root = "::".join(module_of(pathlib.Path(folder, "mod.rs")))
    crate = paths.Crate(ROOT / folder.split("/src/")[0])
    layer = {name: number for number, line in enumerate(lines) for name in line.split()}
    inside = lambda module: module.removeprefix(root + "::").split("::")[0] if module.startswith(root + "::") else None
    modules = {inside(module) for module in crate.files} - {None}
    wrong = [f"{folder}: LAYERS names {name}, which is not there" for name in sorted(layer.keys() - modules)]
    wrong += [f"{folder}: {name} is not in LAYERS" for name in sorted(modules - layer.keys())]
    if wrong:
        return wrong
    for module, named in crate.edges().items():
        if inside(module):
            wrong += [f"{crate.files[module].relative_to(ROOT)}: names {other}, of a layer above" for other in sorted(named)
                      if other == root or inside(other) and layer[inside(other)] > layer[inside(module)]]
    return wrong


def main() -> int:
    paths.self_test()
    wrong = []
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked"],
        cwd=ROOT, check=True, capture_output=True).stdout)
    members = set(metadata["workspace_members"])
    names = {package["name"] for package in metadata["packages"] if package["id"] in members}
    for package in metadata["packages"]:
        name = package["name"]
        if package["id"] in members:
            if name not in CRATES:
                wrong.append(f"{name}: say in .ci/dependencies.py what it may depend on")
                continue
            uses = {d["name"] for d in package["dependencies"] if d["kind"] is None} & names
            wrong += [f"{name} must not depend on {other}" for other in sorted(uses - CRATES[name])]
        else:
            if not licensed(package.get("license") or ""):
                wrong.append(f"{name}: licence {package.get('license')}")
            if not (package["source"] or "").startswith("registry+"):
                wrong.append(f"{name}: comes from {package['source']}, not from the registry")
    folders = [folder for folder, _ in MODULES]
    wrong += [f"{folder}: has two rows in MODULES" for folder in set(folders) if folders.count(folder) > 1]
    wrong += [f"{folder}: is in MODULES and not there" for folder in folders if not (ROOT / folder).is_dir()]
    for folder, forbidden in MODULES:
        for file in sorted((ROOT / folder).rglob("*.rs")):
            wrong += wrong_paths(file, forbidden)
    for folder, lines in LAYERS.items():
        wrong += wrong_layers(folder, lines)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
