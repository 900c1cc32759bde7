"""What differs per family of operations stands in its rows and its own file: nobody else asks for it by name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import module_at

from distarray.expr.op import FAMILIES

read_package = module_at(Path(__file__).with_name("test_architecture.py")).read_package

#: Files in which the name of a family may stand: three rows (`expr.op`, `planner.loops`, `lower.lower`), what runs on
#: small arrays (`kernels.interpret`), and one of its own.
MOST_FILES = 5
#: Families whose stages have one operation. The others are views and what programs are made of: tables of rewrites,
#: and the planner's `stages`, are about them.
KERNELS = [
    kind for kind, row in FAMILIES.items() if not (row.is_fused or row.is_view or row.is_created or row.is_write)
]
KERNELS = [*(k for k in KERNELS if k not in ("source", "crossing")), "take_put"]


@cache
def names_in(module: Any) -> frozenset[str]:
    """Return the texts of a module; not those of lists of its names, nor where operations are declared."""
    skipped: set[ast.AST] = set()
    for node in module.nodes:
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") in ("__all__", "__slots__") for t in node.targets):
            skipped.update(ast.walk(node))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "declare":
            skipped.update(ast.walk(node))
    texts = [node for node in module.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return frozenset(node.value for node in texts if node not in skipped)


def files_of(kind: str) -> set[str]:
    """Return the modules that name a family; operations are made in `ops` and `array`, tests look into `testing`."""
    layers = ("expr", "planner", "kernels", "lower", "runtime", "diagnostics")
    return {m.name for m in read_package() if m.layer in layers and kind in names_in(m)}


@pytest.mark.parametrize("kind", KERNELS)
def test_a_family_stands_in_its_rows_and_in_its_own_file(kind: str) -> None:
    rows = {"distarray.expr.op", "distarray.lower.lower"}
    found = files_of(kind)
    assert rows <= found
    assert len(found) <= MOST_FILES, sorted(found)


def test_families_with_kernels_of_their_own_are_looked_at() -> None:
    assert {"contract", "block", "fold", "tiles", "windows", "take", "take_put", "item"} == set(KERNELS)
