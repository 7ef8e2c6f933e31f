"""Which paths the source of a crate names, and which files define what they lead to."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

VISIBILITY = re.compile(r"\bpub\([^)]*\)")
USE = re.compile(r"^\s*pub(?:\([^)]*\))?\s+use\s+([^;]+);", re.M | re.S)


def code_of(text: str) -> str:
    """The source without comments and without what strings hold."""
    kept = re.compile(r"//[^\n]*|/\*.*?\*/|b?'(?:\\[^']{1,8}|[^'\\\n])'|"
                      r'r(#*)".*?"\1|"(?:\\.|[^"\\])*"', re.S)
    return kept.sub(lambda found: "\n" * found.group(0).count("\n"), text)


def module_of(file: pathlib.Path) -> list[str]:
    """`crate`, and the modules on the way to the file's own."""
    parts = list(file.parts[file.parts.index("src") + 1:-1])
    if file.stem not in ("mod", "lib", "main"):
        parts.append(file.stem)
    return ["crate", *parts]


def absolute(parts: list[str], module: list[str]) -> list[str]:
    """A path of `module` that begins with `super` or `self`, from `crate` on; others as they are."""
    if parts[0] not in ("super", "self"):
        return parts
    ups = next((n for n, part in enumerate(parts) if part != "super"), len(parts))
    return [*module[:max(1, len(module) - ups)], *parts[ups + (parts[0] == "self"):]]


def paths_in(code: str, module: list[str]):
    """Each path that the code names, from `crate` on where it is the crate's own, with its line."""
    # For each open brace the path before it, or None for a brace of another kind.
    stack = []
    for token in re.finditer(r"(?<![\w:])(?:::)?[A-Za-z_]\w*(?:::\w+)*(?:::\{)?|[{}]", code):
        text, prefix = token.group(0), stack[-1] if stack else None
        if text == "}":
            if stack:
                stack.pop()
            continue
        if text == "{":
            stack.append(None)
            continue
        opens = text.endswith("::{")
        parts = text.removesuffix("::{").removeprefix("::").split("::")
        if prefix:
            parts = [*prefix, *parts]
        else:
            parts = absolute(parts, module)
        if opens:
            stack.append(parts)
        yield code.count("\n", 0, token.start()) + 1, "::".join(parts)


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
                    parts = absolute(path.split("::"), module.split("::"))
                    is_child = f"{module}::{parts[0]}" in self.files
                    names[name] = "::".join([module, *parts] if is_child else parts)
            self.exports[module] = names

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
            # `pub(super)` says who may name an item, and names nothing itself.
            for _, path in paths_in(VISIBILITY.sub("pub", USE.sub("", code)), module.split("::")):
                if path.startswith("crate::"):
                    target = self.target(path)
                    # A module is made of its children, so naming them is no loop.
                    if target and target != module and not target.startswith(module + "::"):
                        named.add(target)
            result[module] = named
        return result


def self_test():
    """`super` and braces lead where they lead; comments, strings and characters lead nowhere."""
    code = "use super::{x, super::y::Z, w::{self, V}};\n// crate::c\nlet s = \"crate::d\"; let q = '\"'; super::super::e::f(); let q = '\"';"
    seen = {path for _, path in paths_in(code_of(code), ["crate", "a", "b"])}
    assert {"crate::a::x", "crate::a::w::V", "crate::e::f"} <= seen, seen
    assert not any(path.startswith(("crate::c", "crate::d")) for path in seen), seen
