"""The table of the classes between expressions and tasks: what each is, and the file that it lives in.

``python docs/class_table.py`` writes it into ``reference/classes.md``; a test asks whether it is up to date. The
sentences are those with which the docstrings of the classes begin; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "reference" / "classes.md"
PACKAGE = HERE.parent / "distarray"
BEGIN, END = "<!-- made by docs/class_table.py -->", "<!-- end -->"

#: The middle layers, in the order in which an expression passes them.
LAYERS = {
    "planner": "chooses how every step is cut",
    "lower": "makes tasks of a plan, without Dask",
    "runtime": "runs tasks, on threads or a cluster",
}


def classes(layer: str) -> Iterator[tuple[str, str, str]]:
    """Yield file, name and first sentence of each public class of a layer, by the name of the class."""
    found = []
    for path in (PACKAGE / layer).rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                found.append((path.relative_to(PACKAGE).as_posix(), node.name, text))
    yield from sorted(found, key=lambda row: (row[1].lower(), row[0]))


def page() -> str:
    """Return the text of the page with the tables of today."""
    tables = []
    for layer, what in LAYERS.items():
        rows = [
            f"| {name} | {re.sub('``', '`', text).replace('|', chr(92) + '|')} | `{path}` |"
            for path, name, text in classes(layer)
        ]
        tables.append("\n".join([f"## `{layer}`: {what}", "", "| class | what it is | file |", "|---|---|---|", *rows]))
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n" + "\n\n".join(tables) + f"\n{text[end:]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
