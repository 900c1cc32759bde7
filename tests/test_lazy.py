"""Public names that are loaded at their first use."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import distarray
from distarray import ops

PACKAGES = {"distarray": distarray, "distarray.ops": ops}


def imports_for_type_checkers(package: str) -> dict[str, str]:
    """Names and their modules, as ``if TYPE_CHECKING`` says them."""
    file = PACKAGES[package].__file__
    assert file is not None
    tree = ast.parse(Path(file).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            if node.module != package:
                found[alias.name] = str(node.module)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_is_loaded(package: str) -> None:
    homes = {name: module for module, names in PACKAGES[package]._HOMES.items() for name in names.split()}
    assert homes == imports_for_type_checkers(package)
    for name, module in homes.items():
        assert getattr(PACKAGES[package], name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    module = PACKAGES[package]
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        module.nonsense  # the error is what is tested


def run(code: str, **env: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_small_arrays_that_are_added_need_no_planner_and_no_factorisation() -> None:
    loaded = run(
        "import sys, distarray as dx; float((dx.ones(4) + 1).sum()); "
        "print(*[m for m in sys.modules if m.startswith('distarray.')])"
    ).split()
    for part in ("distarray.planner.propagation", "distarray.lower.lower", "distarray.kernels.linalg",
                 "distarray.ops.linalg.panels", "distarray.array.polynomials", "distarray.array.random"):  # fmt: skip
        assert part not in loaded


def test_all_is_loaded_at_once_where_that_is_asked_for() -> None:
    assert run("import sys, distarray; print('distarray.array.polynomials' in sys.modules)", EAGER_IMPORT="1") == "True"


def test_pickled_expressions_find_operations_that_are_not_loaded(tmp_path: Path) -> None:
    pickled = tmp_path / "x"
    run(
        "import pickle, sys, numpy as np, distarray as dx; x = dx.linalg.det(dx.asarray(np.eye(3)) * 2) + 1; "
        f"pickle.dump(x, open({str(pickled)!r}, 'wb'))"
    )
    assert run(f"import pickle; print(round(float(pickle.load(open({str(pickled)!r}, 'rb'))), 9))") == "9.0"
