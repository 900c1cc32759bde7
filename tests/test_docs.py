"""The documentation names files and modules that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import distarray as dx
from distarray.testing import force_tiles

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


# ------------------------------------------------------------------------------------- pages of other libraries


@pytest.mark.slow
def test_examples_of_scikit_learns_page_run() -> None:
    """In a process of their own: SciPy reads ``SCIPY_ARRAY_API`` when it is imported."""
    pytest.importorskip("sklearn")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--doctest-glob=*.md", "docs/how-to/scikit-learn.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


# -------------------------------------------------------------------------------------------------- the gallery

GALLERY = ROOT / "docs" / "gallery"
PROGRAMS = sorted(page for page in GALLERY.glob("*.md") if page.stem != "index")
by_program = pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)


def code(page: Path) -> str:
    """The program of a page: all of its cells."""
    return "\n".join(re.findall(r"^```\{code-cell\} python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))


def run(page: Path) -> None:
    """Run a program as the site does, and look at the figure that it draws."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    try:
        exec(compile(code(page), str(page), "exec"), {"__name__": "__main__"})
        assert [bool(pyplot.figure(number).axes) for number in pyplot.get_fignums()] == [True]
    finally:
        pyplot.close("all")


def test_the_gallery_has_ten_programs_and_a_card_for_each() -> None:
    links = re.findall(r"^:link: (\S+)$", (GALLERY / "index.md").read_text(), re.MULTILINE)
    assert sorted(links) == [page.stem for page in PROGRAMS]
    assert len(links) == 10


@by_program
def test_program_is_short_and_checks_itself(page: Path) -> None:
    lines = code(page).splitlines()
    assert 0 < len(lines) <= 30
    assert any(line.strip().startswith("assert ") for line in lines)


@by_program
def test_program_runs(page: Path) -> None:
    run(page)


NOTEBOOKS = [page for page in PAGES if "```{code-cell}" in page.read_text() and page.parent != GALLERY]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_notebook_runs(page: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    exec(compile(code(page), str(page), "exec"), {"__name__": "__main__"})
    pyplot.close("all")


@pytest.mark.slow
@by_program
def test_program_runs_on_several_tiles(page: Path) -> None:
    with ExitStack() as stack:
        if page.stem != "attention":  # which says how it is cut
            stack.enter_context(dx.use(dx.Team(3, "T")))
            stack.enter_context(force_tiles(3))
        run(page)
