"""The tables of rules and codes have all that the package finds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from distarray.io.onnx.operator_classes import CLASSES
from distarray.io.onnx.violations import CODES, RULES

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "distarray" / "io" / "onnx"

#: What makes a finding.
MAKERS = {"Violation", "Refusal", "OutputSpecNeeded", "_fault", "refuse"}


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


#: Rules that reject nothing, and why.
PERMISSIVE = {
    "S-1": "any order is legal, out of order with a warning",
    "S-4": "several shards on one device are legal, with a warning",
    "S-7": "sizes that do not multiply to the axis break S-6",
    "S-8": "uneven cuts are legal",
    "S-10": "says when N-1 and M-1 reject",
    "S-11": "says how specs are written, not what they may be",
    "U-1": "has no constraint",
    "N-4": "says what the output is",
    "R-1": "has no constraint",
    "R-2": "says where the result is",
}


def test_every_rule_of_specs_and_classes_accepts_one_and_rejects_one() -> None:
    """onnx:S-2, onnx:U-2, onnx:N-1, onnx:R-3, onnx:M-1, and all others: by the tables of the tests."""
    accepted, rejected = "", ""
    for name in ("test_specs.py", "test_rules.py"):
        first, second = (Path(__file__).parent / name).read_text().split("\nREJECTED = [")
        accepted += first[first.index("\nACCEPTED = [") :]
        rejected += second[: second.index("\n]\n")]
    numbers = {number for number in RULES if number[0] in "SUNRM"}
    tags = re.compile(r'"onnx:([SUNRM]-\d+)"')
    assert numbers - {*tags.findall(accepted)} == {"S-9", "S-10", "S-11"}  # have tests of their own
    assert numbers - {*tags.findall(rejected)} <= {*PERMISSIVE}
    assert {*PERMISSIVE} <= numbers
