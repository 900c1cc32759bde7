"""The documentation names files and modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The changelog speaks of the past.
PAGES = [ROOT / "README.md", *[p for p in sorted((ROOT / "docs").rglob("*.md")) if p.name != "changelog.md"]]
FILE = re.compile(r"`((?:[\w.]+/)+(?:\w+\.py)?)`")
MODULE = re.compile(r"`distarray((?:\.[a-z_]\w*)+)`")


def missing(text: str) -> list[str]:
    """Files and folders, from the root or from the package, and modules with their names that are not there."""
    files = [
        name for name in FILE.findall(text) if not any((base / name).exists() for base in (ROOT, ROOT / "distarray"))
    ]
    return files + [f"distarray{name}" for name in MODULE.findall(text) if not is_there(name[1:].split("."))]


def is_there(names: list[str]) -> bool:
    """Whether a dotted name leads to a file of the package, or to what the text of a file on the way names."""
    at = ROOT / "distarray"
    if (at / ".".join(["distarray", *names])).exists():  # the file of defaults
        return True
    for name in names:
        if (at / name).is_dir():
            at /= name
            continue
        file = at / f"{name}.py"
        return file.exists() or re.search(rf"\b{name}\b", (at / "__init__.py").read_text()) is not None
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_names_files_that_exist(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_what_is_missing_is_found() -> None:
    assert missing("`planner/nowhere.py` and `planner/graph.py`, `distarray.nowhere.f`") == [
        "planner/nowhere.py",
        "distarray.nowhere.f",
    ]
