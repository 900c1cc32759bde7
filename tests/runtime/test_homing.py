"""Small arrays of workers come home to the client when their values are read one after the other."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.errors import BlocksLostError
from distarray.runtime import homing
from distarray.runtime.reading import STAYS_NBYTES
from distarray.testing import counting

pytestmark = pytest.mark.cluster

N = 200
assert N * N * 8 > STAYS_NBYTES > N * 8


def is_home(x: Any) -> bool:
    memo = x._base.current.memo
    return memo is not None and (memo.on_client or memo.home_copy is not None)


def made(seed: int, *shape: int) -> Any:
    """Return an array that workers have: a part of one that is too large for this process."""
    x = dx.random.default_rng(seed).random((1000, 1000)) + 0
    x = (x[tuple(map(slice, shape)) if len(shape) == 2 else (0, slice(*shape))] + 0).persist()
    dx.wait(x)
    assert not is_home(x)
    return x


def test_a_loop_that_reads_numbers_leaves_the_workers_alone_from_its_second_step_on(cluster4: Any) -> None:
    a, b = made(0, N, N), made(1, N)
    A, B = np.asarray(dx.asarray(a) + 0), np.asarray(b + 0)
    x, p = 0 * b, b.copy()
    X, P = 0 * B, B.copy()
    for step in range(6):
        with counting() as counted:
            q = a @ p
            scale = float(q @ q)
            x += q / scale
            p = p - q * (float(q[0]) / scale)
            total = float(x.sum())
        Q = A @ P
        S = float(Q @ Q)
        X += Q / S
        P = P - Q * (float(Q[0]) / S)
        assert scale == pytest.approx(S, rel=1e-12) and total == pytest.approx(X.sum(), rel=1e-12)
        assert step < 2 or (counted.tasks, counted.planner_calls) == (0, 0)
    np.testing.assert_allclose(np.asarray(x), X, rtol=1e-12)
    assert is_home(a)


def test_what_is_large_comes_when_it_is_read_again(cluster4: Any) -> None:
    x, y = made(0, N, N), made(1, N)
    assert float(y.sum()) > 0 and is_home(y)
    assert float(x.sum()) > 0 and not is_home(x)
    x.persist()
    assert not is_home(x)  # nobody has read it again
    with counting() as counted:
        found = float((x + 1).sum())
    assert is_home(x) and counted.tasks == 0 and counted.fetched_bytes <= x.nbytes + 8
    values = np.asarray(x)
    with counting() as counted:
        assert [float(x[i, 3]) for i in range(4)] == values[:4, 3].tolist()
    assert not counted.evaluations and not counted.fetched_bytes  # elements are read of the copy
    assert found == pytest.approx(values.sum() + x.size, rel=1e-12)
    view, before = x[2:], values.copy()
    x[3] = 7  # in memory of its own, seen by every view
    before[3] = 7
    np.testing.assert_array_equal(np.asarray(view), before[2:])
    z = dx.asarray(before, sharding=("x", None)) + x  # goes to workers again
    np.testing.assert_array_equal(np.asarray(z), 2 * before)


def test_what_is_made_of_what_was_read_comes_when_it_is_read(cluster4: Any) -> None:
    x = made(0, N, N)
    expected = np.asarray(x.copy())
    for step in range(4):
        x = x * 0.5 + 1
        expected = expected * 0.5 + 1
        with counting() as counted:
            assert float(x.max()) == expected.max()
        assert (counted.tasks == 0) == (step > 0)
    assert is_home(x)


def test_masks_come_where_only_their_positions_are_asked_for(cluster4: Any) -> None:
    y = made(1, N)
    values = np.asarray(y.copy())
    with counting() as counted:
        np.testing.assert_array_equal(np.asarray(dx.nonzero(y > 0.5)[0]), np.nonzero(values > 0.5)[0])
    assert is_home(y) and counted.tasks == 0
    x, y = made(0, N, 2), made(2, N)
    chosen = np.asarray(x[y > 0.5])
    assert not is_home(y)  # the elements that it chooses are elsewhere
    np.testing.assert_array_equal(chosen, np.asarray(x)[np.asarray(y) > 0.5])


def read_twice(x: Any) -> None:
    for scale in (1.0, 2.0):
        assert np.isfinite(float((x * scale).sum()))


def test_what_somebody_cut_stays(cluster4: Any) -> None:
    cut = dx.ones((N, N), sharding=("x", None)).persist()
    whole = dx.ones((N, N), sharding=(None, None)).persist()
    by_size = made(0, N, N)
    read_twice(cut)
    read_twice(whole)
    assert not is_home(cut) and not is_home(whole)
    with dx.config.set(block_bytes="1 MiB"):
        read_twice(by_size)
    assert not is_home(by_size)
    large = made(2, 800, 800)
    read_twice(large)
    assert not is_home(large)


def test_what_takes_long_stays(cluster4: Any) -> None:
    x = made(0, N, N)
    for _ in range(3):
        assert float(dx.linalg.eigvalsh(x @ x)[0]) != 0
        assert float(dx.map_blocks(lambda block: block + 1, x, dtype="f8").sum()) > 0
    assert not is_home(x)


def test_all_that_is_copied_is_little(cluster4: Any) -> None:
    gc.collect()
    assert homing._have_room(0)
    arrays = [made(i, N, N) for i in range(3)]
    with dx.config.set(literal_max_bytes=homing._copied_nbytes + arrays[0].nbytes):
        for x in arrays:
            read_twice(x)
        assert [is_home(x) for x in arrays] == [True, False, False]
        del arrays[0], x
        gc.collect()
        read_twice(arrays[1])
        assert is_home(arrays[1])


def test_an_array_lies_where_it_did_after_it_was_read(cluster4: Any) -> None:
    da = pytest.importorskip("dask.array")
    host = np.arange(6000.0)
    chunked = dx.from_dask(da.from_array(host, chunks=((1000, 3000, 2000),)))
    for x in (chunked, (dx.from_dask(da.from_array(host, chunks=2000)) * 2).persist(), made(0, N, N)):

        def look(x: Any = x) -> Any:
            sizes = x.map_blocks(lambda block: np.full(block.shape, block.size), dtype=int)
            return x.chunks, x.sharding, x.numblocks, np.unique(sizes).tolist(), [x.local(m).sum() for m in range(4)]

        before = look()
        for scale in range(4):
            assert np.isfinite(float((x * scale).sum()))
        assert look() == before


def test_what_large_arrays_are_computed_with_is_fetched_once(cluster4: Any) -> None:
    x, y = made(0, 1000, 900), made(1, 1000, 100)
    expected = float((np.asarray(x.copy())[:, 3] * (np.asarray(y.copy())[:, 0] > 0.5)).sum())
    with counting() as counted:
        for _ in range(8):
            assert float((y > 0.5).max()) == 1
            assert float((x[:, 3] * (y[:, 0] > 0.5)).sum()) == pytest.approx(expected, rel=1e-12)
    assert y.nbytes <= counted.fetched_bytes <= y.nbytes + 32 * 8


def test_parts_of_what_is_larger_are_not_worth_it_all(cluster4: Any) -> None:
    z = made(0, 700, 700)
    with counting() as counted:
        assert float(z[0, :3].sum()) != float(z[1, :3].sum())
    assert counted.fetched_bytes <= 16 and not is_home(z)


def test_threads_that_read_what_is_still_to_be_made(mortal_cluster: Any) -> None:
    da = pytest.importorskip("dask.array")
    host = np.arange(100_000.0)
    x, y = (dx.from_dask(da.from_array(host, chunks=34_000)) for _ in range(2))
    found: list[float] = []

    def read(of: str) -> None:
        for _ in range(3):
            found.append(float(getattr(x * y, of)()))

    threads = [threading.Thread(target=read, args=(of,), daemon=True) for of in ("sum", "max", "sum")]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert sorted(set(found)) == pytest.approx([host.max() ** 2, (host**2).sum()]) and len(found) == 9


def test_threads_that_read_side_by_side(cluster4: Any) -> None:
    x = made(0, N, N)
    expected = np.asarray(x.copy())
    found: list[float] = []

    def read() -> None:
        for _ in range(5):
            found.append(float((x * 2).max()))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [expected.max() * 2] * 20


def test_blocks_that_are_lost_are_lost(mortal_cluster: Any) -> None:
    x = made(0, N, N)
    read = float((x * 2).max())
    y = x + 1
    z = (x * 2).persist()
    assert float((x * 2).max()) == read and is_home(x)
    mortal_cluster.restart()
    assert float(y.max()) == read / 2 + 1  # the client has what came home
    with pytest.raises(BlocksLostError):
        float((z * 2).max())
