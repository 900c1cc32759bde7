"""The table of the operators of ONNX: which class each is in, and the rule by which its outputs follow.

``python docs/onnx_table.py`` writes it into ``reference/onnx-operators.md``; a test asks whether it is up to date.
"""

from __future__ import annotations

from pathlib import Path

from distarray.io.onnx.operator_classes import CLASSES, OPERATORS

PAGE = Path(__file__).parent / "reference" / "onnx-operators.md"
BEGIN, END = "<!-- made by docs/onnx_table.py -->", "<!-- end -->"


def table() -> str:
    """Return the table, a row for each rule."""
    lines = ["| class | rule | outputs | operators |", "|---|---|---|---|"]
    for group in CLASSES:
        names = " ".join(name for name, row in OPERATORS.items() if row.group is group)
        lines.append(f"| {group.name} | {group.number} | {group.sentence} | {names} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page with the table of now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
