#!/usr/bin/env python3
"""Finds import loops: files of one crate that name each other, directly or through others.

A path leads to the file that defines its item, through re-exports. Tests do not count. A parent that
only declares or re-exports a child does not name it.
"""

import re
import sys

from dependencies import ROOT, code_of, module_of, paths_in

# Loops of more files than this are refused.
MOST = 5

# Crates whose sources are checked, and the loops that are known: a file of the loop, and why it stays.
CRATES = ["icd", "daemon", "devmgr", "proto", "proto/lane", "proto/security", "proto/serving", "bench", "conformance"]
KNOWN: dict[str, str] = {
    "icd/src/stub/event.rs": "OpenCL's nouns name each other; stub/mod.rs says why",
    "daemon/src/runtime/event.rs": "an event keeps the pinned memory of its command, which belongs to a queue",
    "daemon/src/worker/bulk/engine.rs": "the engine starts the ways of the bytes, and they report to it",
}

USE = re.compile(r"^\s*pub(?:\([^)]*\))?\s+use\s+([^;]+);", re.M | re.S)


def without_tests(code: str) -> str:
    """The code up to its test module, which stands last."""
    found = re.search(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{", code)
    return code[:found.start()] if found else code


def leaves(tree: str, prefix: str = ""):
    """Each (path, name) that a use tree brings in."""
    tree = tree.strip()
    found = re.match(r"^(.*?)::\{(.*)\}$", tree, re.S)
    if found or tree.startswith("{"):
        head = found.group(1) if found else ""
        body = found.group(2) if found else tree[1:-1]
        base = prefix + head + "::" if head else prefix
        depth, item = 0, ""
        for letter in body + ",":
            depth += (letter == "{") - (letter == "}")
            if letter == "," and depth == 0:
                if item.strip():
                    yield from leaves(item, base)
                item = ""
            else:
                item += letter
        return
    path, _, name = tree.partition(" as ")
    path = path.strip()
    yield prefix + path, (name.strip() or path.split("::")[-1])


class Crate:
    """The modules of one crate, what they re-export, and which names which."""

    def __init__(self, root):
        self.files, self.code, self.exports = {}, {}, {}
        for file in sorted((root / "src").rglob("*.rs")):
            if "bin" in file.relative_to(root / "src").parts or "gen" in file.parts or file.stem.endswith("tests"):
                continue
            module = "::".join(module_of(file.relative_to(ROOT)))
            self.files[module] = file
            self.code[module] = without_tests(code_of(file.read_text()))
        for module, code in self.code.items():
            names = {}
            for use in USE.finditer(code):
                for path, name in leaves(use.group(1)):
                    names[name] = self.absolute(path, module)
            self.exports[module] = names

    def absolute(self, path: str, module: str) -> str:
        parts = path.split("::")
        if parts[0] == "crate":
            return path
        base = module.split("::")
        while parts and parts[0] in ("super", "self"):
            base = base[:-1] if parts[0] == "super" else base
            parts = parts[1:]
        if path.split("::")[0] not in ("super", "self") and "::".join([*base, parts[0]]) not in self.files:
            return path
        return "::".join([*base, *parts])

    def target(self, path: str, depth: int = 0) -> str | None:
        """The module whose file defines what the path names."""
        parts = path.split("::")
        if parts[0] != "crate" or depth > 8:
            return None
        at = "crate"
        for index, part in enumerate(parts[1:], 1):
            if f"{at}::{part}" in self.files:
                at = f"{at}::{part}"
            elif part in self.exports.get(at, {}):
                rest = parts[index + 1:]
                return self.target("::".join([self.exports[at][part], *rest]), depth + 1)
            else:
                return at if at in self.files else None
        return at if at in self.files else None

    def edges(self) -> dict[str, set[str]]:
        result = {}
        for module, code in self.code.items():
            named = set()
            for _, path in paths_in(USE.sub("", code), module.split("::")):
                if path.startswith("crate::"):
                    target = self.target(path)
                    # A module is made of its children, so naming them is no loop.
                    if target and target != module and not target.startswith(module + "::"):
                        named.add(target)
            result[module] = named
        return result


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
