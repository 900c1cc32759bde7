"""Public names that are loaded at their first use."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import module_at

import distarray
from distarray.composed.numpy_arguments import own
from distarray.lazy import loaded

stub = module_at(Path(__file__).parents[1] / "docs" / "stub.py")


def test_type_checkers_see_what_is_loaded() -> None:
    assert stub.STUB.read_text() == stub.stub(), "run: python docs/stub.py"


def test_every_public_name_is_there() -> None:
    assert len(set(distarray.__all__)) == len(distarray.__all__)
    for module, names in distarray._HOMES.items():
        for name in names.split():
            assert own(getattr(distarray, name)) is getattr(importlib.import_module(module), name)
    for name in distarray.__all__:
        assert hasattr(distarray, name), name
    assert distarray.array is not importlib.import_module("distarray.array")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        distarray.nonsense  # the error is what is tested


def test_a_module_that_another_thread_imports_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SimpleNamespace(begun=threading.Event(), may_end=threading.Event())
    (tmp_path / "imported_slowly.py").write_text(
        "import sys\nsys.modules['gate'].begun.set()\nsys.modules['gate'].may_end.wait(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "gate", gate)
    assert loaded("imported_slowly") is None
    other = threading.Thread(target=importlib.import_module, args=("imported_slowly",))
    other.start()
    assert gate.begun.wait(60)
    assert "imported_slowly" in sys.modules
    assert loaded("imported_slowly") is None
    gate.may_end.set()
    other.join()
    assert loaded("imported_slowly") is sys.modules.pop("imported_slowly")


def test_modules_of_others_are_asked_for_in_one_place() -> None:
    """A module that is looked up in ``sys.modules`` may be half of one; `loaded` gives whole ones."""
    asking = re.compile(r"sys\.modules\.get\(|in sys\.modules")
    package = Path(distarray.__file__).parent
    found = {file.name for file in package.rglob("*.py") if asking.search(file.read_text())}
    assert found == {"lazy.py"}


CALLS = {"distributed": "dx.asarray([1.0])", "dask.array": "dx.asarray(Box())", "xarray": "dx.compute(x)"}
BESIDE_AN_IMPORT = """
import importlib, threading, time
import numpy as np, distarray as dx
class Box:
    def __array__(self, dtype=None, copy=None): return np.ones(3)
x = dx.asarray(np.ones(3))
call = lambda: {call}
call()
errors, calls, is_done = [], 0, False
def go():
    global calls
    while not is_done:
        try: call()
        except Exception as error: errors.append(repr(error))
        calls += 1
thread = threading.Thread(target=go)
thread.start()
importlib.import_module("{name}")
is_done = True
thread.join()
print(calls > 10, set(errors))
"""


@pytest.mark.parametrize("name", CALLS)
def test_calls_work_while_another_thread_imports(name: str) -> None:
    pytest.importorskip(name)
    assert run(BESIDE_AN_IMPORT.format(name=name, call=CALLS[name])) == "True set()"


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
                 "distarray.ops.linalg.panels", "distarray.composed.polynomials",
                 "distarray.composed.random"):  # fmt: skip
        assert part not in loaded


def test_the_import_loads_no_kernel_and_nothing_that_plans() -> None:
    loaded = run("import sys, distarray; print(*[m for m in sys.modules if m.startswith('distarray.')])").split()
    assert "distarray.array.array" in loaded
    for part in ("distarray.kernels.program", "distarray.kernels.monoids", "distarray.kernels.tasks",
                 "distarray.planner.redistribution", "distarray.lower.bundling"):  # fmt: skip
        assert part not in loaded


def test_all_is_loaded_at_once_where_that_is_asked_for() -> None:
    assert (
        run("import sys, distarray; print('distarray.composed.polynomials' in sys.modules)", EAGER_IMPORT="1") == "True"
    )


def test_pickled_expressions_find_operations_that_are_not_loaded(tmp_path: Path) -> None:
    pickled = tmp_path / "x"
    run(
        "import pickle, sys, numpy as np, distarray as dx; x = dx.linalg.det(dx.asarray(np.eye(3)) * 2) + 1; "
        f"pickle.dump(x, open({str(pickled)!r}, 'wb'))"
    )
    assert run(f"import pickle; print(round(float(pickle.load(open({str(pickled)!r}, 'rb'))), 9))") == "9.0"
