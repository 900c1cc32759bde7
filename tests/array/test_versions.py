"""Writes that fail after the call: the observation raises once, and all aliases see the last good version again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.array import versions
from distarray.testing import force_tiles

A = np.arange(12.0)


class Broken(Exception):
    """What the kernels of these tests raise."""


def breaks(block: np.ndarray) -> np.ndarray:
    raise Broken


def broken(x: dx.DistArray) -> dx.DistArray:
    return dx.map_blocks(breaks, x, dtype="f8")


@pytest.fixture(params=["one tile", "several tiles"])
def x(request: pytest.FixtureRequest) -> Iterator[dx.DistArray]:
    """An array of twelve numbers that was computed; errors are deferred."""
    with dx.config.set(errors="deferred"):
        if request.param == "one tile":
            yield (dx.asarray(A, team=None) + 0.0).persist()
        else:
            with force_tiles(3):
                yield (dx.asarray(A, team=dx.Team((3,), ("T",), members=(0, 1, 2))) + 0.0).persist()


def test_a_failed_write_raises_at_the_observation_and_is_taken_back(x: dx.DistArray) -> None:
    view, whole = x[::2], x.reshape(3, 4)
    x[1:] = broken(x[1:])
    with pytest.raises(Broken):
        x.compute()
    for alias, expected in ((x, A), (view, A[::2]), (whole, A.reshape(3, 4))):
        np.testing.assert_array_equal(alias.compute(), expected)
    view += 1
    expected = A.copy()
    expected[::2] += 1
    np.testing.assert_array_equal(x.compute(), expected)


@pytest.mark.parametrize("observe", ["alias", "reader", "persist", "several", "print"])
def test_any_observation_that_needs_the_version_takes_it_back(x: dx.DistArray, observe: str) -> None:
    view = x[3:]
    x[:] = broken(x)
    total = x.sum()
    with pytest.raises(Broken):
        if observe == "alias":
            view.compute()
        elif observe == "reader":
            float(total)
        elif observe == "persist":
            x.persist()
        elif observe == "print":
            str(x)
        else:
            dx.compute(x + 1, x - 1)
    np.testing.assert_array_equal(x.compute(), A)


def test_what_was_written_since_goes_with_it_and_raises_once(x: dx.DistArray) -> None:
    x[:2] = 7  # good, and pending when the failure is noticed
    x[4:] = broken(x[4:])
    x += 1
    x[0] = -1
    with pytest.raises(Broken):
        x.compute()
    expected = A.copy()
    expected[:2] = 7
    np.testing.assert_array_equal(x.compute(), expected)
    np.testing.assert_array_equal((x * 2).compute(), expected * 2)


def test_arrays_that_do_not_depend_on_the_failure_stay(x: dx.DistArray) -> None:
    y, z = x * 2, x.copy()
    z += 1
    x[:] = broken(x)
    np.testing.assert_array_equal(y.compute(), A * 2)
    with pytest.raises(Broken):
        x.compute()
    np.testing.assert_array_equal(z.compute(), A + 1)


def test_a_good_write_stays_when_its_reader_fails(x: dx.DistArray) -> None:
    x[2:] = 7
    bad = broken(x)
    y = x.copy()
    y[0] = bad[0]
    expected = A.copy()
    expected[2:] = 7
    for failing in (bad, y):
        with pytest.raises(Broken):
            failing.compute()
    for array in (x, y):
        np.testing.assert_array_equal(array.compute(), expected)


def test_two_arrays_that_fail_fall_back_each_at_its_own_observation(x: dx.DistArray) -> None:
    y = x.copy()
    bad = broken(x)
    x[:] = bad
    y[3:] = bad[3:]
    for z in (x, y):
        with pytest.raises(Broken):
            z.compute()
        np.testing.assert_array_equal(z.compute(), A)


@pytest.mark.parametrize("window", [0, 1, 2, 512])
def test_a_full_window_does_not_swallow_the_error(x: dx.DistArray, window: int) -> None:
    with dx.config.set(window=window):
        try:
            x[1:] = broken(x[1:])
            others = [x.copy() * 0 + k for k in range(3)]
        except Broken:
            assert window == 0  # then there is nothing deferred
        else:
            assert others
            with pytest.raises(Broken):
                x.compute()
        np.testing.assert_array_equal(x.compute(), A)


def test_the_old_version_is_not_overwritten_while_it_may_be_needed(x: dx.DistArray) -> None:
    y = x.copy()
    y[:] = broken(x)  # its old version is that of x, and no pending operation reads it
    bad = y + 0
    del bad
    x += 1
    x.persist()
    with pytest.raises(Broken):
        y.compute()
    np.testing.assert_array_equal(y.compute(), A)
    np.testing.assert_array_equal(x.compute(), A + 1)


def test_steps_in_place_keep_their_blocks_and_no_history(x: dx.DistArray) -> None:
    def block() -> int:
        memo = x._node().memo
        assert memo is not None
        return int(np.asarray(memo.blocks[-1]).ctypes.data)

    if x.team is None:
        x = (dx.asarray(np.arange(700_000.0), team=None) + 0.0).persist()  # smaller ones are computed at the call
    x += 1
    x.persist()
    first = block()
    for _ in range(3):
        x += 1
        assert x._base.history
        x.persist()
        assert not x._base.history
        assert block() == first
    assert x._base not in versions._unsettled


def test_a_base_that_died_is_forgotten(x: dx.DistArray) -> None:
    before = len(versions._unsettled)
    with dx.config.set(eager_bytes=0):
        y = x.copy()
        y[1:] = 2 * x[1:]
    old = weakref.ref(y._base)
    assert len(versions._unsettled) == before + 1
    del y
    gc.collect()
    assert old() is None
    assert len(versions._unsettled) == before


def test_a_file_that_is_gone_takes_nothing_with_it(tmp_path: Path) -> None:
    """Also where errors are raised at the call: reading is deferred in any case."""
    path = tmp_path / "gone.npy"
    np.save(path, A)
    y, z = (dx.asarray(A, team=None) + 0.0).persist(), (dx.asarray(A, team=None) + 1.0).persist()
    y[2:] = dx.load(path, team=None)[2:]
    z[:] = dx.load(path, team=None)
    path.unlink()
    for array, expected in ((y, A), (z, A + 1)):
        with pytest.raises(OSError):
            array.compute()
        np.testing.assert_array_equal(array.compute(), expected)


def test_what_streams_holds_nothing_back() -> None:
    """A version that is never stored is never known to be good."""
    with dx.config.set(memory_limit="1 MiB"):
        x = dx.asarray(np.arange(200_000.0), team=None) + 0.0
        x[:] = x[::-1] * 2
        assert x._base.history == ()


@pytest.mark.cluster
def test_on_a_cluster(cluster4: Any) -> None:
    team = dx.Team((4,), ("R",), cluster4)
    host = np.arange(64.0 * 512).reshape(64, 512)
    with dx.config.set(errors="deferred"):
        z = (dx.asarray(host, team=team, sharding=("R", None)) + 0.0).persist()
        view = z[:, ::2]
        z[:3] = 7
        z[1:] = dx.map_blocks(breaks, z[1:], dtype="f8")
        z.persist()  # hands it to the workers, and does not wait
        z += 1
        with pytest.raises(Broken):
            z.compute()
        expected = host.copy()
        expected[:3] = 7
        np.testing.assert_array_equal(view.compute(), expected[:, ::2])
        z += 1
        np.testing.assert_array_equal(z.compute(), expected + 1)
        float(z.sum())  # the blocks are there: nothing is remembered any more
        assert z._base.history == ()


@pytest.mark.cluster
def test_what_was_written_on_failed_blocks_of_a_cluster_is_taken_back_too(cluster4: Any) -> None:
    """Whoever reads a small array has its operands here first, and meets there what another one has met."""
    host = np.arange(6000.0).reshape(120, 50)
    with dx.config.set(errors="deferred"):
        z = dx.asarray(host, sharding=("x", None)) + 1.0
        z[:] = written = broken(z)
        other = z + 1
        z[4] = 1
        with pytest.raises(Broken):
            other.compute()
        np.testing.assert_array_equal(np.asarray(z), host + 1)
        with pytest.raises(Broken):
            written.compute()
