"""User functions from modules that workers lack: their tasks fail with the reason, and no worker is lost."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SOURCE = """
def double(block, **keywords):
    return block * 2

def join(a, b):
    return a * b

def on_column(column):
    return column.sum()

def chunk(block, axis, keepdims):
    return block.sum(axis=axis, keepdims=keepdims)

"""

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "map_blocks": lambda m, x: dx.map_blocks(m.double, x, dtype="f8"),
    "map_overlap": lambda m, x: dx.map_overlap(m.double, x, depth=1, boundary="none", dtype="f8"),
    "apply_gufunc": lambda m, x: dx.apply_gufunc(m.double, "()->()", x, output_dtypes="f8"),
    "reduction": lambda m, x: dx.reduction(x, chunk=m.chunk, aggregate=m.chunk, axis=0, dtype="f8"),
    "apply_along_axis": lambda m, x: dx.apply_along_axis(m.on_column, 0, x),
    "einsum": lambda m, x: dx.einsum("ij,jk->ik", x, x.T, join=m.join, dtype="f8"),
}


@pytest.fixture(scope="module")
def of_client_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A module that this process can import, and workers that are processes cannot."""
    folder: Path = tmp_path_factory.mktemp("client")
    (folder / "of_client_alone.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("of_client_alone")
    finally:
        sys.path.remove(str(folder))
        del sys.modules["of_client_alone"]


@pytest.mark.parametrize("name", CALLS)
def test_a_function_that_workers_cannot_load_fails_its_tasks_alone(
    process_cluster: Any, of_client_alone: Any, name: str
) -> None:
    host = np.arange(60_000.0).reshape(300, 200)
    workers = process_cluster.run(os.getpid)
    with dx.config.set(block_bytes=0):
        x = (dx.asarray(host) + 0).persist()
        with pytest.raises(RuntimeError, match=r"cannot be loaded where it is to run \(ModuleNotFoundError: .*upload"):
            np.asarray(CALLS[name](of_client_alone, x))
        assert float((x + 1).sum()) == host.sum() + host.size
    assert process_cluster.run(os.getpid) == workers


@pytest.mark.parametrize("name", CALLS)
def test_a_function_of_the_users_script_arrives(process_cluster: Any, name: str) -> None:
    """It travels by value."""
    host = np.arange(6_000.0).reshape(30, 200)
    script: Any = type("Script", (), {})
    functions: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, functions)
    for function in ("double", "join", "on_column", "chunk"):
        setattr(script, function, staticmethod(functions[function]))
    with dx.config.set(block_bytes=0):
        x = (dx.asarray(host) + 0).persist()
        found = np.asarray(CALLS[name](script, x))
    wanted = {"reduction": host.sum(axis=0), "apply_along_axis": host.sum(axis=0), "einsum": host @ host.T}
    np.testing.assert_allclose(found, wanted.get(name, host * 2))
