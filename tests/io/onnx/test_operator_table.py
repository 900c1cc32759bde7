"""The tables of rules and codes have all that the package finds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from distarray.io.onnx.operator_classes import CLASSES
from distarray.io.onnx.rules import CODES, RULES

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "distarray" / "io" / "onnx"

#: What makes a finding.
MAKERS = {"Fault", "Refusal", "OutputSpecNeeded", "_error", "_warn", "refuse"}


def found_in_the_package() -> tuple[set[str], set[str]]:
    """Rules and codes that stand where findings are made."""
    texts = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in MAKERS or name == "__init__":
                    texts |= {a.value for a in ast.walk(node) if isinstance(a, ast.Constant) and type(a.value) is str}
    rules = {text for text in texts if re.fullmatch(r"[A-Z]-\d+", text)}
    return rules, {text for text in texts if re.fullmatch(r"[a-z]+(-[a-z]+)+|gathered", text)}


def test_every_code_is_in_the_table_and_found_somewhere() -> None:
    rules, codes = found_in_the_package()
    assert codes == {*CODES}
    assert rules <= {*RULES}
    assert {group.number for group in CLASSES} <= {*RULES}
    assert {rule for code in CODES.values() for rule in code.rules} <= {*RULES}


def test_every_rule_of_the_specification_is_in_the_table() -> None:
    page = (ROOT / "docs" / "design" / "requirements.md").read_text()
    assert set(re.findall(r"onnx:([B-Z]-\d+)", page)) <= {*RULES}
