"""A file that is held is read once by the evaluation that keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import tables
from distarray.testing import counting, force_tiles

A = np.random.default_rng(0).standard_normal((40, 6))
T4 = dx.Team((4,), ("R",), members=(0, 1, 2, 3))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """How often each element was made by a kernel that reads files or draws numbers."""
    found: Counter[tuple[int, int]] = Counter()

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(backend: Any, box: Any, *args: Any) -> Any:
            (a, b), (c, d) = box
            found.update((i, j) for i in range(a, b) for j in range(c, d))
            return original(backend, box, *args)

        return kernel

    monkeypatch.setattr(tables, "CREATE", tables.CREATE | {"read_store": counted(tables.CREATE["read_store"])})
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", A)
    return tmp_path / "a.npy"


READERS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: x * 2 + x,
    "a reduction": lambda x: x.sum(axis=0),
    "a slice": lambda x: x[3:30:2] + 1,
    "neighbours": lambda x: x[1:] - x[:-1],
    "transposed": lambda x: x.T + 1,
    "a product": lambda x: x.T @ x,
    "a reshape": lambda x: x.reshape(6, 40) - 1,
    "two passes": lambda x: x - x.mean(axis=0),
    "chosen rows": lambda x: x[np.array([3, 1, 1, 39])],
    "itself": lambda x: x,
}


@pytest.mark.parametrize("cut", [None, "R", "tiles"])
@pytest.mark.parametrize("reader", READERS)
def test_a_held_file_is_read_once(path: Path, reads: Counter[Any], reader: str, cut: str | None) -> None:
    if cut == "tiles":
        with force_tiles(3):
            x = dx.load(path, team=T4)
    else:
        x = dx.load(path, team=T4, sharding=None if cut is None else (cut, None))
    y = READERS[reader](x)
    np.testing.assert_allclose(y.compute(), READERS[reader](A), rtol=1e-12)
    np.testing.assert_array_equal(x.compute(), A)
    assert set(reads.values()) == {1}
    assert len(reads) == A.size


def test_a_file_that_nobody_holds_is_read_where_it_is_needed(path: Path, reads: Counter[Any]) -> None:
    x = dx.load(path, team=T4, sharding=("R", None))
    y = x[:3] + 1
    del x
    np.testing.assert_array_equal(y.compute(), A[:3] + 1)
    assert set(reads) == {(i, j) for i in range(3) for j in range(6)}


def test_a_file_that_does_not_fit_is_read_again(path: Path, reads: Counter[Any]) -> None:
    """B-18: what is held and too large streams."""
    with dx.config.set(retain="none"):
        x = dx.load(path, team=T4, sharding=("R", None))
        np.testing.assert_allclose((x - x.mean(axis=0)).compute(), A - A.mean(axis=0))
    assert set(reads.values()) == {2}


def test_reductions_of_a_file_that_does_not_fit_read_it_in_one_pass(path: Path, reads: Counter[Any]) -> None:
    with dx.config.set(retain="none"):
        x = dx.load(path, team=T4, sharding=("R", None))
        found = (x - x.mean(axis=0)) / x.std(axis=0) + x.max()
        np.testing.assert_allclose(found.compute(), (A - A.mean(axis=0)) / A.std(axis=0) + A.max(), rtol=1e-12)
    assert set(reads.values()) == {2}


def test_the_pass_that_reads_stores(path: Path) -> None:
    """One task per tile reads, keeps, and computes what reads it elementwise."""
    x = dx.load(path, team=T4, sharding=("R", None))
    y = (x * 2).sum(axis=1)
    with counting() as c:
        y.persist()
    assert c.by_class["tile"] == 4
    np.testing.assert_allclose(y.compute(), (A * 2).sum(axis=1))


@pytest.mark.cluster
def test_on_a_cluster(path: Path, cluster4: Any, reads: Counter[Any]) -> None:
    x = dx.load(path, team=dx.Team((4,), ("R",), cluster4), sharding=("R", None))
    np.testing.assert_allclose((x - x.mean(axis=0)).compute(), A - A.mean(axis=0))
    np.testing.assert_array_equal(x.compute(), A)
    assert set(reads.values()) == {1}
