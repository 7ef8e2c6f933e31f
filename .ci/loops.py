#!/usr/bin/env python3
"""Finds import loops: files of one crate that name each other, directly or through others.

A path leads to the file that defines its item, through re-exports. Tests do not count. A parent that
only declares or re-exports a child does not name it.
"""

import sys

from paths import ROOT, Crate

# Loops of more files than this are refused.
MOST = 5

# Crates whose sources are checked, and the loops that are known: a file of the loop, and why it stays.
CRATES = ["icd", "daemon", "devmgr", "proto", "proto/discovery", "proto/lane", "proto/managers", "proto/security", "proto/serving",
          "proto/trace", "bench", "conformance"]
KNOWN: dict[str, str] = {
    "icd/src/stub/event.rs": "OpenCL's nouns name each other; stub/mod.rs says why",
}

def components(edges):
    """Tarjan's algorithm: the strongly connected components of more than one module."""
    index, low, stack, on, found, count = {}, {}, [], set(), [], 0
    sys.setrecursionlimit(10000)

    def visit(node):
        nonlocal count
        index[node] = low[node] = count
        count += 1
        stack.append(node)
        on.add(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while True:
                member = stack.pop()
                on.discard(member)
                group.append(member)
                if member == node:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    for node in edges:
        if node not in index:
            visit(node)
    return found


def main() -> int:
    wrong = 0
    for name in CRATES:
        crate = Crate(ROOT / name)
        for loop in components(crate.edges()):
            if len(loop) > MOST:
                files = [str(crate.files[module].relative_to(ROOT)) for module in loop]
                if any(file in KNOWN for file in files):
                    continue
                wrong += 1
                print(f"{len(loop)} files import each other: {', '.join(files)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
