"""The list of requirements and the tests agree: a named test exists, and no tag is unknown."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "design" / "requirements.md"
#: Those of ONNX are of a document of their own: `onnx:R-3` is not R-3.
TAG = re.compile(r"(onnx:[A-Z]-\d+|(?<!onnx:)\b[BCR]-\d+)\b")
#: A reference to a test in the table: `tests/sharding/test_cuts.py::test_boundaries_nest`
REFERENCE = re.compile(r"`tests/([\w/]+\.py)::(\w+)`")


def rows() -> dict[str, str]:
    """Third column of the tables by tag."""
    found: dict[str, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if TAG.fullmatch(cells[0]):
            assert len(cells) == 3, line
            assert cells[0] not in found, f"{cells[0]} is listed twice"
            found[cells[0]] = cells[2]
    return found


def test_every_row_names_tests_that_exist_or_says_planned():
    wrong = []
    for tag, shown_by in rows().items():
        references = REFERENCE.findall(shown_by)
        if not references and shown_by != "planned":
            wrong.append(f"{tag}: {shown_by!r} names no test; write `tests/file.py::test_name` or planned")
        for file, name in references:
            path = TESTS / file
            if not path.exists() or not re.search(rf"def {name}\(", path.read_text(encoding="utf-8")):
                wrong.append(f"{tag}: there is no tests/{file}::{name}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_tag_in_a_test_is_in_the_list():
    known = rows()
    unknown = {
        f"{path.relative_to(TESTS)}: {tag}"
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
        for tag in TAG.findall(path.read_text(encoding="utf-8"))
        if tag not in known
    }
    assert not unknown
