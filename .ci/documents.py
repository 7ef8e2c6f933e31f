"""Whether each file exists that a table "Where to change what" names. Run from anywhere; no arguments.

A path begins with a folder of the repository. A name without such a folder is in the folder of the path before it in its row.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["ARCHITECTURE.md", *(f"{crate}/DESIGN.md" for crate in ("icd", "daemon", "devmgr"))]
HEADING = "## Where to change what\n"
FILE = re.compile(r"`([\w./-]+(?:\.\w+|/))`")


def missing_in(row: str):
    """The names of a row that lead to no file."""
    folder = ROOT
    for name in FILE.findall(row):
        path = ROOT / name
        if (ROOT / name.split("/")[0]).is_dir() and "/" in name:
            folder = path if name.endswith("/") else path.parent
        else:
            path = folder / name
        if not path.exists():
            yield name


def main() -> int:
    faults = []
    for document in DOCUMENTS:
        _, found, table = (ROOT / document).read_text().partition(HEADING)
        rows = [row for row in table.splitlines() if row.startswith("| ")]
        if not found or len(rows) < 2:
            faults.append(f"{document}: the table \"{HEADING[3:-1]}\" is missing")
        for row in rows:
            faults += (f"{document}: no file `{name}`, in the row{row.split('|')[1]}" for name in missing_in(row))
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
