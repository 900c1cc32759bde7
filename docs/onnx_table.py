"""The tables of ONNX's annotations: the class of each operator, with the rule by which its outputs follow; all rules;
and the codes of what breaks them.

``python docs/onnx_table.py`` writes them into ``reference/onnx-operators.md``; a test asks whether it is up to date.
"""

from __future__ import annotations

from made import Page

from distarray.io.onnx.operator_classes import CLASSES, OPERATORS
from distarray.io.onnx.violations import CODES, RULES


def rules() -> str:
    """Return the rules, a row for each."""
    lines = ["| rule | about | what it says |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {rule.number} | {rule.subject} | {rule.sentence} |" for rule in RULES.values())])


def codes() -> str:
    """Return the codes, a row for each."""
    lines = ["| code | severity | found by | what is wrong |", "|---|---|---|---|"]
    for code in CODES.values():
        found_by = " ".join(code.rules) or "any class"
        lines.append(f"| `{code.code}` | {code.severity} | {found_by} | {code.sentence} |")
    return "\n".join(lines)


def operators() -> str:
    """Return the operators, a row for each class and rule."""
    lines = ["| class | rule | outputs | operators |", "|---|---|---|---|"]
    for group in CLASSES:
        names = " ".join(sorted([name for name, row in OPERATORS.items() if row.group is group]))
        lines.append(f"| {group.name} | {group.number} | {group.sentence} | {names} |")
    return "\n".join(lines)


def table() -> str:
    """Return the tables of operators, rules and codes."""
    return f"{operators()}\n\n## Rules\n\n{rules()}\n\n## Codes\n\n{codes()}"


PAGE = Page("reference/onnx-operators.md", __file__, table)

if __name__ == "__main__":
    PAGE.write()
