"""What travels between members, and when: counted exactly, for programs as a user writes them."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import peak_nbytes
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.kernels import tasks
from distarray.runtime.transport import PUSH
from distarray.testing import counting

SIZES = [None, 1, 3, 4]
T4 = dx.Team((4,), ("R",))


def rows(values: np.ndarray, team: dx.Team | None) -> dx.DistArray:
    if team is None:
        return dx.asarray(values, team=None)
    return dx.asarray(values, team=team, sharding=("R",) + (None,) * (values.ndim - 1))


def team_of(size: int | None) -> dx.Team | None:
    return None if size is None else dx.Team((size,), ("R",))


# ------------------------------------------------------------------------------------- one program, any team


def program(xp: Any, a: Any, b: Any) -> Any:
    """About ten lines of elementwise work, slices and writes."""
    c = a * 2 + b[::-1]
    c[1:] = c[1:] - a[:-1]
    d = xp.where(c > b, c, b * 3)
    d[::3] = d[::3] + a[::3] * b[::3]
    e = d[2:-1, ::-1] * d[1:-2]
    e[:, 1:] += e[:, :-1]
    f = xp.maximum(e, c[2:-1])
    f[-3:] = f[:3] - f[-3:]
    g = xp.concat([f, d[:2], f[::2]])
    g[4] = g[0] + g[-1]
    return g[1:, :3] * g[:-1, 1:]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "c16"])
@pytest.mark.parametrize("size", SIZES)
def test_one_program_gives_the_same_bits_on_any_team(size: int | None, dtype: str) -> None:
    """B-20: and without a team no task at all, so no transfer."""
    rng = np.random.default_rng(1)
    a, b = ((rng.random((13, 4)) * 50).astype(dtype) for _ in range(2))
    if dtype == "c16":
        a, b = a + 1j, b - 2j
    team = team_of(size)
    with np.errstate(over="ignore"), counting() as c:
        if dtype == "c16":  # no order: the two functions that need one are left out
            x, y = rows(a, team), rows(b, team)
            ours = np.asarray(_without_order(x, y))
            theirs = _without_order(a.copy(), b.copy())
        else:
            ours = np.asarray(program(dx, rows(a, team), rows(b, team)))
            theirs = program(np, a.copy(), b.copy())
    assert ours.dtype == theirs.dtype
    assert ours.tobytes() == theirs.tobytes()
    if size is None:
        assert (c.tasks, c.messages) == (0, 0)
    if size == 1:
        assert c.messages == 0


def _without_order(a: Any, b: Any) -> Any:
    c = a * 2 + b[::-1]
    c[1:] = c[1:] - a[:-1]
    c[::3] = c[::3] + a[::3] * b[::3]
    return c[2:-1, ::-1] * c[1:-2]


# ------------------------------------------------------------------------------------------ counted messages


def stencil(a: Any, b: Any, target: slice, sources: list[slice]) -> None:
    b[target] += sum((a[s] for s in sources[1:]), a[sources[0]])


@pytest.mark.parametrize(
    ("n", "size", "target", "sources", "messages", "n_rows"),
    [
        (16, 4, slice(2, 14), [slice(k, k + 12) for k in range(5)], 6, 12),
        (10, 4, slice(2, 8), [slice(k, k + 6) for k in range(5)], 5, 10),
        (12, 3, slice(1, 9), [slice(0, 8), slice(2, 10)], 4, 4),
        (12, 4, slice(1, 11, 2), [slice(0, 10, 2), slice(5, 10), slice(1, 6)], 6, 7),
    ],
    ids=["B-21", "B-21 uneven", "B-22", "B-25"],
)
def test_counted_examples(n: int, size: int, target: slice, sources: list[slice], messages: int, n_rows: int) -> None:
    """B-21, B-22, B-25: in the words of a user."""
    a, b = np.random.default_rng(0).random((2, n, 3))
    x, y = rows(a, team_of(size)), rows(b, team_of(size))
    with counting() as c:
        stencil(x, y, target, sources)
        y.persist()
    stencil(a, b, target, sources)
    np.testing.assert_array_equal(np.asarray(y), b)
    assert (c.messages, c.rows) == (messages, n_rows)
    assert c.bytes_moved == n_rows * 3 * 8


@st.composite
def shifted_reads(draw: st.DrawFn) -> tuple[int, int, slice, list[slice]]:
    """n, members, a target slice, and slices of a source of the same length."""
    n, size = draw(st.integers(4, 30)), draw(st.integers(2, 5))
    length = draw(st.integers(1, n // 2))

    def one() -> slice:
        step = draw(st.sampled_from([s for s in (1, 2, 3, -1, -2) if (length - 1) * abs(s) < n]))
        span = (length - 1) * abs(step)
        low = draw(st.integers(0, n - 1 - span))
        if step > 0:
            return slice(low, low + span + 1, step)
        return slice(low + span, low - 1 if low else None, step)

    return n, size, one(), [one() for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=80)
@given(shifted_reads())
def test_only_the_union_of_needed_rows_travels_in_one_message_per_pair(
    case: tuple[int, int, slice, list[slice]],
) -> None:
    """B-25: messages <= pairs, rows <= union, for any strides."""
    n, size, target, sources = case
    a = np.arange(float(n))
    x, y = rows(a, team_of(size)), rows(-a, team_of(size))
    x.persist(), y.persist()
    with counting() as c:
        y[target] = sum((x[s] for s in sources[1:]), x[sources[0]] * 2)
        y.persist()
    expected = -a
    expected[target] = sum((a[s] for s in sources[1:]), a[sources[0]] * 2)
    np.testing.assert_array_equal(np.asarray(y), expected)

    def owner(r: int) -> int:
        return ((r + 1) * size - 1) // n

    needed = {
        (owner(int(i)), owner(int(j)), int(j))
        for s in sources
        for i, j in zip(np.arange(n)[target], np.arange(n)[s])
        if owner(int(i)) != owner(int(j))
    }
    assert c.messages == len({pair[:2] for pair in needed})
    assert c.rows == len(needed)


def test_reads_with_no_write_between_them_share_a_transfer_and_a_write_forces_another() -> None:
    """B-23."""
    a = np.arange(16.0)
    counts = {}
    for writes in (False, True):
        x = rows(a, T4)
        first = x[1:] + x[:-1]
        if writes:
            x[4] = -1.0
        second = x[1:] * x[:-1]
        with counting() as c:
            got = np.asarray(first + second)
        b = a.copy()
        if writes:
            b[4] = -1.0
        np.testing.assert_array_equal(got, a[1:] + a[:-1] + b[1:] * b[:-1])
        counts[writes] = c.messages
    assert counts[False] == 3
    assert counts[True] > counts[False]


def test_the_cut_of_an_assignment_reaches_back_through_elementwise_chains() -> None:
    """B-24: equal cuts move nothing; the chain is computed where it is written, so only its source moves."""
    x, y, z = (rows(np.arange(48.0).reshape(16, 3) + k, T4) for k in range(3))
    out = dx.zeros((16, 3), team=T4, sharding=("R", None))
    with counting() as c:
        out[...] = (x + y) * z
        out.persist()
    assert c.messages == 0
    assert c.by_class["tile"] <= 8
    shifted = dx.zeros((16, 3), team=T4, sharding=("R", None))
    with counting() as c:
        shifted[4:] = ((x * 2 + 1) * x)[:-4]
        shifted.persist()
    # Four rows cross each border: those of x, not those of intermediate results.
    assert {(t.source, t.destination, t.rows) for t in c.transfers} == {(0, 1, 4), (1, 2, 4), (2, 3, 4)}
    assert set(c.by_class) >= {"tile", "piece"}


@pytest.mark.parametrize("length", [1, 6, 15])
def test_a_chain_with_halos_is_one_task_per_region_whatever_its_length(length: int) -> None:
    """B-26: 64 rows, 4 members, radius 2; a core task reads its member's own block alone."""
    a = np.random.default_rng(0).random((64, 2))
    x, y = rows(a, T4), rows(np.zeros((64, 2)), T4)
    with dx.config.set(overlap="always"), counting() as c:
        value, expected = x[:-4] + x[1:-3] + x[2:-2] + x[3:-1] + x[4:], 0
        expected = a[:-4] + a[1:-3] + a[2:-2] + a[3:-1] + a[4:]
        for k in range(length):
            value, expected = value * 0.5 + k, expected * 0.5 + k
        y[2:-2] = value
        y.persist()
    np.testing.assert_array_equal(np.asarray(y)[2:-2], expected)
    assert c.by_class["tile"] == 8
    assert (c.messages, c.rows) == (6, 12)


@pytest.mark.parametrize("overlap", [True, False, "always"])
def test_overlap_changes_no_value(overlap: bool | str) -> None:
    """B-27."""
    a = np.random.default_rng(0).random((37, 5))
    x = rows(a, T4)
    with dx.config.set(overlap=overlap):
        for _ in range(3):
            x[1:-1] = (x[:-2] + x[2:] + x[1:-1]) / 3
        got = np.asarray(x)
    for _ in range(3):
        a[1:-1] = (a[:-2] + a[2:] + a[1:-1]) / 3
    np.testing.assert_array_equal(got, a)


@pytest.mark.cluster
def test_all_core_tasks_start_before_the_first_halo_arrives(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-27: with every message between workers delayed until they have."""
    team = dx.Team((4,), ("R",))
    a = np.random.default_rng(0).random((68, 3))
    x, y = rows(a, team), rows(np.zeros((68, 3)), team)
    (x * 1).compute(), (y * 1).compute()  # placed
    started: list[str] = []
    lock = threading.Lock()
    run_program = tasks.run_program

    @functools.wraps(run_program)  # pickled by name, hence found here by the workers of this process
    def recorded(stage: Any, tile: Any, *args: Any) -> Any:
        blocks = [b for arg in args for b in (arg if isinstance(arg, list) else [arg])]  # packs are lists
        n_rows = [len(block) for block in blocks if isinstance(block, np.ndarray)]
        with lock:
            started.append("core" if min(n_rows) == 17 else "border")
        return run_program(stage, tile, *args)

    monkeypatch.setattr(tasks, "run_program", recorded)
    for worker in cluster4.cluster.workers.values():
        for name in ("get_data", PUSH):  # what is asked for, and what programs send
            delayed = _delayed(worker.handlers[name], lambda: started.count("core") == 4)
            monkeypatch.setitem(worker.handlers, name, delayed)
    with dx.config.set(overlap="always"):
        y[2:-2] = x[:-4] + x[4:]
        got = y.compute()
    np.testing.assert_array_equal(got[2:-2], a[:-4] + a[4:])
    assert started.count("core") == 4
    assert "border" in started
    assert started[:4] == ["core"] * 4


def _delayed(handler: Any, until: Callable[[], bool]) -> Any:
    """Answer when something has come true; in any case after some seconds, so that what waits for it shows."""

    @functools.wraps(handler)  # its signature says what it is called with
    async def answer(*args: Any, **kwargs: Any) -> Any:
        for _ in range(200):
            await asyncio.sleep(0.05)
            if until():
                break
        return await handler(*args, **kwargs)

    return answer


# ------------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("size", [1, 3, 4, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_arrays_shorter_than_the_team_are_exact(n: int, size: int) -> None:
    """B-30: parts of 0 rows, slices that miss members."""
    # Whole numbers: sums in any order are exact.
    a = np.random.default_rng(n).integers(0, 9, (n, 2)) / 4
    x = rows(a, team_of(size))
    np.testing.assert_array_equal(np.asarray(x * 2 + 1), a * 2 + 1)
    np.testing.assert_array_equal(np.asarray(x[1:] - x[:-1]), a[1:] - a[:-1])
    np.testing.assert_array_equal(np.asarray(x.T @ x), a.T @ a)
    np.testing.assert_array_equal(np.asarray(x.sum(axis=0)), a.sum(axis=0))
    np.testing.assert_array_equal(np.asarray(x.sum(axis=1)), a.sum(axis=1))
    np.testing.assert_array_equal(np.asarray(dx.concat([x, x[::-1]])), np.concatenate([a, a[::-1]]))
    np.testing.assert_array_equal(np.asarray(dx.sort(x, axis=0)), np.sort(a, axis=0))
    np.testing.assert_array_equal(np.asarray(dx.roll(x, 2, axis=0)), np.roll(a, 2, axis=0))
    np.testing.assert_array_equal(np.asarray(dx.cumulative_sum(x, axis=0)), np.cumsum(a, axis=0))
    np.testing.assert_array_equal(np.asarray(x[x > 0.5]), a[a > 0.5])
    np.testing.assert_array_equal(np.asarray(x.reshape(-1)), a.reshape(-1))
    x[1:] = x[:-1] * 2
    a[1:] = a[:-1] * 2
    np.testing.assert_array_equal(np.asarray(x), a)
    if n:
        assert float(x.max()) == a.max()
        np.testing.assert_array_equal(np.asarray(x.min(axis=0)), a.min(axis=0))
        np.testing.assert_array_equal(np.asarray(x.argmax(axis=0)), a.argmax(axis=0))


@pytest.mark.parametrize("size", SIZES)
def test_arrays_of_rank_0_are_exact(size: int | None) -> None:
    """B-30."""
    team = team_of(size)
    x = dx.asarray(3.0, team=team)
    assert x.shape == ()
    assert float(x * 2 + 1) == 7.0
    y = dx.arange(5.0, team=team)
    assert float((y * x).sum() / x) == 10.0
    x += 1
    x[...] = x * 2
    x[()] -= 1
    assert float(x) == 7.0
    assert x.reshape(1, 1).shape == (1, 1)
    assert float(dx.sum(x)) == float(dx.max(x)) == 7.0
    np.testing.assert_array_equal(np.asarray(dx.stack([x, x])), [7.0, 7.0])


# ------------------------------------------------------------------------------------------------- memory


def test_a_fused_expression_has_at_most_one_block_of_temporaries() -> None:
    """B-33: a*b + c*d."""
    n = 1 << 19
    block = n * 8
    with dx.use(team=None):
        a, b, c, d = (dx.asarray(np.random.default_rng(k).random(n)) for k in range(4))
        for x in (a, b, c, d):
            x.persist()
        (a * b + c * d).persist()  # planned once; what the pool keeps is free again
        gc.collect()
        result, peak = peak_nbytes(lambda: (a * b + c * d).persist())
    assert peak <= 2 * block + (1 << 18)
    np.testing.assert_array_equal(result.local(0), a.compute() * b.compute() + c.compute() * d.compute())


# ------------------------------------------------------------------------------------------ two cut axes


@pytest.mark.parametrize("shape", [(12, 8), (11, 7), (4, 4), (5, 9)])
@pytest.mark.parametrize("sizes", [(2, 2), (1, 3), (3, 2)], ids=str)
def test_halos_on_two_cut_axes_with_corners(shape: tuple[int, int], sizes: tuple[int, int]) -> None:
    """B-51: a box of nine points."""
    team = dx.Team(sizes, ("R", "C"))
    a = np.random.default_rng(2).random(shape)
    x = dx.asarray(a, team=team, sharding=("R", "C"))
    y = dx.zeros(shape, team=team, sharding=("R", "C"))
    b = np.zeros(shape)
    for _ in range(2):
        _box(x, y)
        _box(a, b)
        x, y, a, b = y, x, b, a
    np.testing.assert_allclose(np.asarray(x), a, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(y), b, rtol=1e-14)


def _box(a: Any, b: Any) -> None:
    n, m = a.shape
    total = 0
    for i in range(3):
        for j in range(3):
            total = total + a[i : n - 2 + i, j : m - 2 + j] * (1 + i + 3 * j)
    b[1:-1, 1:-1] = total


def test_corners_travel_as_single_elements() -> None:
    """B-51, B-25: 8 x 8 on 2 x 2 members: to each of them a row, a column and a corner, in one message each."""
    team = dx.Team((2, 2), ("R", "C"))
    x = dx.asarray(np.arange(64.0).reshape(8, 8), team=team, sharding=("R", "C"))
    y = dx.zeros((8, 8), team=team, sharding=("R", "C"))
    x.persist(), y.persist()
    with counting() as c:
        _box(x, y)
        y.persist()
    assert c.messages == 12
    assert sorted(t.nbytes for t in c.transfers) == [8] * 4 + [32] * 8
