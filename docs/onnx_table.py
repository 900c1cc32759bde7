"""The table of the operators of ONNX: which class each is in, and the rule by which its outputs follow.

``python docs/onnx_table.py`` writes it into ``reference/onnx-operators.md``; a test asks whether it is up to date.
"""

from __future__ import annotations

from made import Page

from distarray.io.onnx.operator_classes import CLASSES, OPERATORS


def table() -> str:
    """Return the table, a row for each rule."""
    lines = ["| class | rule | outputs | operators |", "|---|---|---|---|"]
    for group in CLASSES:
        names = " ".join(name for name, row in OPERATORS.items() if row.group is group)
        lines.append(f"| {group.name} | {group.number} | {group.sentence} | {names} |")
    return "\n".join(lines)


PAGE = Page("reference/onnx-operators.md", __file__, table)

if __name__ == "__main__":
    PAGE.write()
