"""The table of the classes between expressions and tasks: what each is, and the file that it lives in.

``python docs/class_table.py`` writes it into ``reference/classes.md``; a test asks whether it is up to date. The
sentences are those with which the docstrings of the classes begin; nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from made import Page

PACKAGE = Path(__file__).parents[1] / "distarray"

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
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                found.append((path.relative_to(PACKAGE).as_posix(), node.name, text))
    yield from sorted(found, key=lambda row: (row[1].lower(), row[0]))


def table(layer: str) -> str:
    """Return the table of a layer."""
    lines = ["| class | what it is | file |", "|---|---|---|"]
    for path, name, text in classes(layer):
        what = text.replace("``", "`").replace("|", r"\|")
        lines.append(f"| {name} | {what} | `{path}` |")
    return "\n".join(lines)


def tables() -> str:
    """Return the tables of all layers."""
    return "\n\n".join([f"## `{layer}`: {what}\n\n{table(layer)}" for layer, what in LAYERS.items()])


PAGE = Page("reference/classes.md", __file__, tables)

if __name__ == "__main__":
    PAGE.write()
