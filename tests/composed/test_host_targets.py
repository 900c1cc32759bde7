"""Arrays of numpy take our results: ``out=``, updates in place and at positions, copies; numpy is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles

X = np.arange(12.0).reshape(4, 3)
AT = np.array([0, 0, 2])


@pytest.fixture(autouse=True, params=[1, 3], ids=["one tile", "three tiles"])
def _tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with force_tiles(request.param):
        yield


#: What is done to a buffer, with arrays that `c` makes.
WRITES: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "+=": lambda b, c: b.__iadd__(c(X)),
    "*= of a view": lambda b, c: b[::2].__imul__(c(X[:2])),
    "add": lambda b, c: np.add(c(X), 1, out=b),
    "add, broadcast": lambda b, c: np.add(c(X[0]), 1, out=b),
    "add, where": lambda b, c: np.add(c(X), 1, out=b, where=c(X > 4)),
    "add, positional": lambda b, c: np.add(c(X), b, b),
    "divmod": lambda b, c: np.divmod(c(X), 2, out=(None, b)),
    "sqrt to columns": lambda b, c: np.sqrt(c(X), out=b.T[::-1].T),
    "overlap": lambda b, c: np.add(b[:-1], c(X[1:]), out=b[1:]),
    "overlap, reversed": lambda b, c: np.multiply(b[::-1], c(np.full((4, 3), 2.0)), out=b),
    "matmul": lambda b, c: np.matmul(c(X), c(np.eye(3)), out=b),
    "dot": lambda b, c: np.dot(c(X), c(np.eye(3)), out=b),
    "sum": lambda b, c: np.sum(c(X), axis=0, out=b[0]),
    "max": lambda b, c: np.max(c(X), axis=1, out=b[:, 0]),
    "mean": lambda b, c: np.mean(c(X), axis=0, out=b[1]),
    "median": lambda b, c: np.median(c(X), axis=0, out=b[1]),
    "quantile": lambda b, c: np.quantile(c(X), [0.2, 0.5], axis=0, out=b[:2]),
    "cumsum": lambda b, c: np.cumsum(c(X), axis=1, out=b),
    "add.reduce": lambda b, c: np.add.reduce(c(X), axis=1, out=b[:, 2]),
    "add.accumulate": lambda b, c: np.add.accumulate(c(X), out=b),
    "add.outer": lambda b, c: np.add.outer(c(X[:, 0]), c(X[0]), out=b),
    "add.at": lambda b, c: np.add.at(b, c(AT), 1.0),
    "add.at, values": lambda b, c: np.add.at(b, AT, c(X[:3])),
    "negative.at": lambda b, c: np.negative.at(b, (c(AT), 1)),
    "put": lambda b, c: np.put(b, c(AT), 1.0),
    "put, wrap": lambda b, c: np.put(b, c(AT + 11), c(X[0]), mode="wrap"),
    "copyto": lambda b, c: np.copyto(b, c(X)),
    "copyto, broadcast": lambda b, c: np.copyto(dst=b, src=c(X[:, :1])),
    "copyto, where": lambda b, c: np.copyto(b, c(X), where=c(X > 5)),
    "place": lambda b, c: np.place(b, c(X > 5), [7.0, 8.0]),
    "putmask": lambda b, c: np.putmask(b, c(X > 5), c(X * 2)),
    "put_along_axis": lambda b, c: np.put_along_axis(b, c(np.array([[1, 0, 2]])), 5.0, axis=0),
    "fill_diagonal": lambda b, c: np.fill_diagonal(b, c(np.array([1.0, 2, 3]))),
    "setitem": lambda b, c: b.__setitem__(slice(1, 3), c(X[:2])),
    "clip": lambda b, c: np.clip(c(X), 2, 5, out=b),
    "take": lambda b, c: np.take(c(X), [3, 2, 1, 0], axis=0, out=b),
    "choose": lambda b, c: np.choose(c(X.astype(int) % 2), [c(X), c(-X)], out=b),
    "concatenate": lambda b, c: np.concatenate([c(X[:1]), c(X[1:])], out=b),
    "compress": lambda b, c: np.compress([True] * 4, c(X), axis=0, out=b),
    "einsum": lambda b, c: np.einsum("ij,jk->ik", c(X), c(np.eye(3)), out=b),
    "round": lambda b, c: np.round(c(X / 3), 1, out=b),
}


@pytest.mark.parametrize("name", WRITES)
def test_buffers_have_what_numpy_writes(name: str) -> None:
    mine, theirs = (np.arange(12.0)[::-1].copy().reshape(4, 3) for _ in range(2))
    made, expected = WRITES[name](mine, dx.asarray), WRITES[name](theirs, np.asarray)
    np.testing.assert_array_equal(mine, theirs)
    if isinstance(expected, np.ndarray):
        assert type(made) is np.ndarray
        assert np.shares_memory(made, mine)


@pytest.mark.parametrize("dtype", ["f4", "c16", "i8", "?"])
def test_results_cast_as_numpys_do_or_nothing_is_written(dtype: str) -> None:
    for casting in ("no", "safe", "same_kind", "unsafe"):
        mine, theirs = np.zeros((4, 3), dtype), np.zeros((4, 3), dtype)
        try:
            np.add(X, 0.5, out=theirs, casting=casting)
        except TypeError:
            with pytest.raises(TypeError, match="Cannot cast"):
                np.add(dx.asarray(X), 0.5, out=mine, casting=casting)
            assert not mine.any()
        else:
            assert np.add(dx.asarray(X), 0.5, out=mine, casting=casting) is mine
            np.testing.assert_array_equal(mine, theirs)


def test_read_only_buffers_are_refused() -> None:
    b = np.zeros(3)
    b.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        np.add(dx.ones(3), 1, out=b)
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(b, dx.ones(3))


def test_what_is_pending_keeps_the_values_that_it_saw() -> None:
    b = np.arange(4.0)
    with dx.config.set(eager_bytes=0):
        pending = dx.ones(4) * b
        np.multiply(dx.ones(4), 7, out=b)
        np.testing.assert_array_equal(pending, np.arange(4.0))
    np.testing.assert_array_equal(b, np.full(4, 7.0))


def test_a_buffer_that_an_array_shows_is_written_through_it() -> None:
    b = np.arange(6.0)
    np.copyto(b, dx.asarray(b, copy=False)[::-1])
    np.testing.assert_array_equal(b, np.arange(6.0)[::-1])


def test_blocks_come_one_after_the_other() -> None:
    b = np.zeros((4, 3))
    with dx.testing.counting() as c:
        np.add(dx.asarray(X), 1, out=b)
    assert c.fetched_bytes <= X.nbytes
    np.testing.assert_array_equal(b, X + 1)


def test_axes_of_one_in_front_are_dropped_where_a_host_array_is_copied_to() -> None:
    for shape in ((1, 3), (1, 1, 1), (2, 3)):
        found: list[Any] = []
        for make in (np.asarray, dx.asarray):
            target = np.zeros(3)
            try:
                dx.copyto(target, make(np.arange(1.0, 1 + np.prod(shape)).reshape(shape)))
                found.append(target.tolist())
            except ValueError:
                found.append(ValueError)
        assert found[0] == found[1], shape
