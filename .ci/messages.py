#!/usr/bin/env python3
"""Refuses error texts and warnings that name no subject.

It reads each `#[error("…")]`, and each message of `warn!` and `error!`, in the product's sources. A text must
not begin with a bare pronoun or participle, and an error's text must have more than one word.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = ["cl-headers/src", "daemon/src", "devmgr/src", "icd/src", "proto"]

LITERAL = r'"((?:[^"\\]|\\.)*)"'
ERROR = re.compile(r"#\[error\(\s*" + LITERAL, re.S)
# Fields come first. A literal behind `=` is the value of a field.
LOG = re.compile(r'\b(?:warn|error)!\((?:(?:[^";]|=\s*"[^"]*")*?,)??\s*' + LITERAL + r"\s*[,)]", re.S)

# Pronouns and participles that point at a subject outside of the text.
NO_SUBJECT = re.compile(
    r"(it|its|he|his|they|their|them|who|whoever|whose|what|whatever|which|so|such|(this|that|these|those)"
    r"( is| are| was| were| has| have| of| that|:)|there is no such|no such|(not )?(used|given|told|asked|said|seen"
    r"|held|lent|left|met|taken|refused|closed|lost|ended|removed|assigned|known|tried|sent|spoken))\b", re.I)


def problem(text: str, is_error: bool) -> str | None:
    """Why a text is refused, if it is."""
    text = re.sub(r"\\\n\s*", "", text).strip()
    if NO_SUBJECT.match(text):
        return "names no subject"
    if is_error and " " not in text and "{" not in text:
        return "is a single word"
    return None


def self_test() -> None:
    for bad in ["it has failed", "Closed; once more", "accept"]:
        assert problem(bad, is_error=True), bad
    for good in ["this node requires a lease", "{0}", "invalid duration `{0}`; expected e.g. `90s`"]:
        assert problem(good, is_error=True) is None, good


def main() -> int:
    self_test()
    wrong = []
    for file in sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.rs") if "tests" not in file.parts):
        source = file.read_text()
        for found in [*ERROR.finditer(source), *LOG.finditer(source)]:
            if why := problem(found[1], found.re is ERROR):
                line = source.count("\n", 0, found.start(1)) + 1
                wrong.append(f'{file.relative_to(ROOT)}:{line}: "{found[1]}" {why}')
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main())
