"""Operations that were made ready: the values, aliases, warnings and errors of NumPy, and no node."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers import eventually, peak_nbytes
from hypothesis import given
from hypothesis import strategies as st

import distarray as dx
from distarray.array import at_call
from distarray.expr.expr import Expr
from distarray.kernels import ready
from distarray.kernels.buffers import POOL, SMALLEST
from distarray.kernels.loans import is_ours
from distarray.runtime import small
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

A = np.arange(24.0).reshape(4, 6) - 7


def is_block(x: dx.DistArray) -> bool:
    return x._base.block is not None


def computed(host: Any) -> dx.DistArray:
    """An array that an operation at the call has made."""
    x = dx.asarray(host) + 0
    assert is_block(x)
    return x


def _written(x: Any) -> Any:
    x[1:-1, ::2] = 0.25 * (x[:-2, ::2] + x[2:, ::2])
    x[0] = 3
    x[:, 1] -= x[:, 2]
    x += 1
    return x


#: What loops on small arrays are made of.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda xp, x: xp.sqrt(x * x + 0.5) - 0.1 * x,
    "comparison": lambda xp, x: (x > 0) & ~(x == 2),
    "power": lambda xp, x: x**2 + (x * x) ** 0.5,
    "broadcast": lambda xp, x: x[:, :1] * x[1],
    "transposed": lambda xp, x: x.T + x[:, 0],
    "inexact": lambda xp, x: xp.exp(x[:, ::2] / 10),
    "integers": lambda xp, x: x > 300,
    "sum": lambda xp, x: x.sum(),
    "sum of a transpose": lambda xp, x: x.T.sum(axis=0) / 3,
    "max": lambda xp, x: x.max(axis=1, keepdims=True),
    "mean": lambda xp, x: x[1:, ::2].mean(axis=-1),
    "any": lambda xp, x: xp.any(x > 3, axis=(0, 1)),
    "argmax": lambda xp, x: x.argmax(),
    "sum in single": lambda xp, x: xp.sum(x, dtype=np.float32),
    "matmul": lambda xp, x: x @ x.T,
    "matmul of parts": lambda xp, x: x[1:, ::2] @ x[3:0:-1, 1:5:3] + x[0, 0],
    "matmul of transposes": lambda xp, x: (x[:, 1:].T / 3) @ x[:, ::-2] - x[1:, :5].T @ x[:3, 3:],
    "vector": lambda xp, x: x @ x[0],
    "vector of a column": lambda xp, x: x[:, 1] @ x[::-1, ::2] / 3,
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=2),
    "dot": lambda xp, x: xp.dot(x.T / 3, x),
    "element": lambda xp, x: x[2, 3],
    "number": lambda xp, x: xp.asarray(float(x[1, 1]) + float(x.sum())),
    "written": lambda xp, x: _written(x),
    "roll": lambda xp, x: xp.roll(x, 2, axis=1) + xp.roll(x.T, -3, 0).T,
    "roll of both axes": lambda xp, x: xp.roll(x[1:], (5, 1), axis=(0, 1)),
    "roll of all": lambda xp, x: xp.roll(x, 7),
    "solve": lambda xp, x: xp.linalg.solve(x[:, 2:] ** 3 + 1, x[:, 0]),
    "inverse": lambda xp, x: xp.linalg.inv(x[:, 2:] ** 3 + 1),
    "one of several": lambda xp, x: xp.linalg.svd(x)[1],
    "another of several": lambda xp, x: xp.abs(xp.linalg.qr(x).R),
    "least squares": lambda xp, x: xp.linalg.lstsq(x.T, x[0])[0],
    "cross": lambda xp, x: xp.linalg.cross(x[:, :3], x[:, 3:]),
    "einsum": lambda xp, x: xp.einsum("ij,kj->ik", x, x),
    "composed": lambda xp, x: xp.polyval(x[0], x) + xp.trapezoid(x, axis=0),
    "composed with constants": lambda xp, x: xp.nanmean(xp.sqrt(xp.abs(x)), axis=0) + xp.corrcoef(x.T)[0],
    "average": lambda xp, x: xp.average(x, axis=1),
    "deviation of what is no nan": lambda xp, x: xp.nanstd(xp.sqrt(xp.abs(x)), axis=0),
    "convolution": lambda xp, x: xp.convolve(x[0], x[1, :3]) + xp.correlate(x[2], x[1, :3], "full"),
    "unwrapped": lambda xp, x: xp.unwrap(x * 2, axis=0),
    "partial sums": lambda xp, x: (
        xp.cumulative_sum(x, axis=1, include_initial=True)[:, 1:] + xp.cumulative_prod(x, axis=0)
    ),
    "polynomials": lambda xp, x: xp.poly(x[0]) + xp.polyint(x[1]),
    "powers": lambda xp, x: xp.vander(x[0], 3) + xp.diag(x[0], 1)[1:, :3],
    "cross of numpy's": lambda xp, x: xp.cross(x[:, :3], x[:, 3:]),
    "product of several": lambda xp, x: xp.linalg.multi_dot([x, x.T, x, x[0]]),
    "with a number": lambda xp, x: xp.trapezoid(x, dx=0.5) + xp.linalg.lstsq(x.T, x[0], rcond=1e-3)[0],
    "reduce": lambda xp, x: np.add.reduce(x) + np.hypot.reduce(x, keepdims=True) - np.maximum.reduce(x, initial=None),
}


@pytest.mark.parametrize("name", STEPS)
def test_repeats_make_no_node_and_give_numpys_values(name: str) -> None:
    for _ in range(3):  # the first ones make it ready
        STEPS[name](dx, computed(A))
    x, expected = computed(A), STEPS[name](np, A.copy())
    with mock.patch.object(Expr, "__init__", side_effect=AssertionError("a node is made")):
        found = STEPS[name](dx, x) if name != "number" else float(x[1, 1]) + float(x.sum())
    host = np.asarray(found)
    assert host.dtype == expected.dtype
    np.testing.assert_allclose(host, expected, rtol=1e-14)


@pytest.mark.cluster
def test_on_a_cluster_the_clients_own_data_are_computed_here_as_in_one_process(cluster4: Any) -> None:
    for name, step in STEPS.items():
        test_repeats_make_no_node_and_give_numpys_values(name)
        assert is_block(x := dx.asarray(A) + 0)
        assert x.team == dx.current_team() is not None, step
    with dx.config.set(eager_bytes=0):
        waits = dx.asarray(A, team=None) + 1  # of an environment that it never meets
    host = np.random.default_rng(0).random((600, 600))
    x = dx.asarray(host) + 0
    with dx.testing.counting() as c:
        for _ in range(4):
            x[1:-1] = (x[:-2] + x[2:]) / 2
            host[1:-1] = (host[:-2] + host[2:]) / 2
        np.testing.assert_array_equal(np.asarray(x), host)
    assert c.evaluations == c.inline == 8
    assert c.planner_calls == c.tasks == 0
    np.testing.assert_array_equal(np.asarray(waits), A + 1)


@pytest.mark.cluster
def test_on_a_cluster_what_takes_long_and_what_workers_have_is_computed_there(cluster4: Any) -> None:
    host = np.random.default_rng(0).random((600, 600))
    x = dx.asarray(host) + 0
    assert not is_block(dx.sort(x, axis=0))
    assert is_block(dx.sort(x[:200, :200] + 0, axis=0))
    np.testing.assert_array_equal(np.asarray(dx.sort(x, axis=0)), np.sort(host, axis=0))


@pytest.mark.cluster
def test_what_may_meet_data_of_workers_is_made_there_of_data_that_are_sent_once(cluster4: Any) -> None:
    host = np.random.default_rng(0).random((300, 300))
    y = dx.asarray(host) + 0
    assert is_block(y * 2)
    with dx.config.set(block_bytes=0):
        there = (dx.asarray(host) + 1).persist()
    z, expected = there, host + 1
    for i in range(6):
        made = y - i
        assert not is_block(made)  # each would be sent
        z, expected = z * 0.5 + made, expected * 0.5 + (host - i)
    del made
    plan = dx.explain(z)
    assert plan.host_bytes == host.nbytes
    np.testing.assert_array_equal(np.asarray(z), expected)
    del z, there, plan
    eventually(lambda: is_block(y * 2))  # nothing is there any more
    waits = dx.ones((600, 600)) + 1  # which workers make from nothing
    assert not is_block(waits)
    assert not is_block(y - 1)
    np.testing.assert_array_equal(np.asarray(waits), np.full((600, 600), 2.0))


def test_what_is_known_of_an_environment_goes_with_it() -> None:
    team = dx.Team((2,), ("gone",), members=(0, 1))
    x = dx.asarray(A, team=team)
    for _ in range(3):
        x = x * 2 + A
    gone = weakref.ref(x._env)
    del x, team
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("team", [None, dx.Team((2,), ("x",), members=(0, 1))], ids=str)
def test_arrays_that_say_the_same_team_meet_at_the_call(team: dx.Team | None) -> None:
    x, y = [dx.asarray(A, team=team) + 0 for _ in range(2)]
    x + y
    with mock.patch.object(Expr, "__init__", side_effect=AssertionError("a node is made")):
        found = x + y
    np.testing.assert_array_equal(np.asarray(found), A + A)


@pytest.mark.parametrize("name", STEPS)
def test_repeats_give_the_bits_of_what_waits(name: str) -> None:
    with dx.config.set(eager_bytes=0):
        late = np.asarray(STEPS[name](dx, dx.asarray(A)))
    for _ in range(3):
        assert np.asarray(STEPS[name](dx, computed(A))).tobytes() == late.tobytes()


def test_a_cast_makes_no_node_of_what_it_casts() -> None:
    x = computed(A)
    for dtype in ("f4", int, np.dtype("c16")):
        np.testing.assert_array_equal(np.asarray(x.astype(dtype)), A.astype(dtype))
    assert is_block(x)


def test_writes_to_no_elements_evaluate_nothing() -> None:
    x = computed(A)
    for value in (3, computed(A)[:0], computed(A)[0]):
        with mock.patch.object(Expr, "__init__", side_effect=AssertionError("a node is made")):
            x[4:] = value
    with pytest.raises(ValueError, match=r"could not broadcast input array from shape \(5,\) into shape \(0,6\)"):
        x[4:] = computed(A)[0, 1:]
    np.testing.assert_array_equal(np.asarray(x), A)


@pytest.mark.parametrize(
    ("make", "most", "lent"),
    [
        (lambda x: dx.roll(x, 3, axis=1), 1, 0),
        (lambda x: dx.concat([x, x], axis=0), 2, 0),
        (lambda x: dx.pad(x, 1), 1.1, 0),
        (lambda x: dx.fft.fft(x, axis=0), 2, 2),  # NumPy casts; a result as large as this is lent
        (lambda x: dx.fft.fft(x, axis=1), 2, 2),
    ],
    ids=["roll", "concat", "pad", "transform", "transform of rows"],
)
def test_what_is_made_of_several_steps_is_written_into_one_array(
    make: Callable[[Any], Any], most: float, lent: float
) -> None:
    x = computed(np.zeros((256, 128)))
    for _ in range(3):
        make(x)
    made, peaks, idle = [], [], []
    for _ in range(3):
        POOL.trim()  # else a copy may be made in memory that was there before
        result, peak = peak_nbytes(lambda: make(x))
        idle.append(POOL.idle_nbytes)
        made.append(result)
        peaks.append(peak)
    assert all(map(is_block, made))
    # Of three goes the least: what other threads do meanwhile counts too. Half an array is less than a copy; one that
    # was made after others had gone is no peak, but lies idle.
    assert min(peaks) < (most + lent + 0.5) * x.nbytes
    assert min(idle) == 0


def address(x: dx.DistArray) -> int:
    assert x._base.block is not None
    return x._base.block.ctypes.data


def test_a_write_stays_in_place_while_nobody_else_has_the_elements() -> None:
    x, expected = computed(A), A.copy()
    where = address(x)
    for z in (x, expected):
        z[1:3] = 5
        z[0] = z[3]
    assert address(x) == where
    x.__dx_node__()  # asked for, and let go
    x[2] = 8
    assert address(x) == where
    y = x.copy()  # which has the same version until one of them is written
    x[2] = 9
    assert address(x) != where
    expected[2] = 8
    np.testing.assert_array_equal(np.asarray(y), expected)
    expected[2] = 9
    np.testing.assert_array_equal(np.asarray(x), expected)


def test_each_of_several_results_has_memory_of_its_own() -> None:
    for _ in range(3):
        x = computed(A)
        u, s, vh = dx.linalg.svd(x)
        expected = [np.asarray(part).copy() for part in (u, s, vh)]
        u[...] = 0
        s += 1
        np.testing.assert_array_equal(np.asarray(vh), expected[2])
        np.testing.assert_array_equal(np.asarray(s), expected[1] + 1)
        np.testing.assert_array_equal(np.asarray(x), A)


def test_what_looks_at_elements_goes_through_nodes() -> None:
    singular = np.ones((3, 3))
    for _ in range(3):
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            dx.linalg.solve(computed(singular), computed(np.ones(3)))
        assert int(dx.linalg.matrix_rank(computed(singular))) == 1


def test_updates_at_repeated_positions_are_numpys() -> None:
    where = np.array([0, 2, 2, -1])
    x, a = computed(A), A.copy()
    seen, part = x[:, 1:], a[:, 1:]
    for _ in range(3):
        dx.add.at(x, (where, 1), 0.5)
        np.add.at(a, (where, 1), 0.5)
        dx.multiply.at(seen, where, computed(A[:, 1:]))
        np.multiply.at(part, where, A[:, 1:])
    np.testing.assert_array_equal(np.asarray(x), a)
    with pytest.raises(IndexError):
        dx.add.at(x, np.array([0, 99]), 1.0)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        dx.multiply.at(x, where, 1e308)
    np.testing.assert_array_equal(np.asarray(x), a)


def test_overlapping_writes_read_what_was_there() -> None:
    x, a = computed(np.arange(12.0)), np.arange(12.0)
    for z in (x, a):
        z[1:] = z[:-1]
        z[::-1] = z
        z[:6] += z[3:9]
    np.testing.assert_array_equal(np.asarray(x), a)


def test_what_waits_for_the_old_elements_gets_them() -> None:
    x = computed(A)
    with dx.config.set(eager_bytes=0):
        waiting = x * 2
    before = x.copy()
    x[1] = 7
    x += 1
    np.testing.assert_array_equal(np.asarray(waiting), A * 2)
    np.testing.assert_array_equal(np.asarray(before), A)
    assert is_block(x)


def test_other_options_are_heeded_at_the_call() -> None:
    x = computed(A)
    x + 1
    with dx.config.set(eager_bytes=0):
        y = x + 1
        assert y._node().memo is None
        x[0] = 5
        assert x._node().memo is None
    assert float(y.sum()) == (A + 1).sum()
    with force_tiles(2):
        assert not is_block(dx.asarray(A) + 1)
    with dx.config.set(block_bytes=0):
        assert not is_block(dx.asarray(A) + 1)


def test_warnings_name_the_line_and_writes_are_done_where_they_are_errors() -> None:
    x = computed(A)
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as caught:
            1 / (x - x)
        assert caught[0].filename == __file__
        with pytest.warns(RuntimeWarning, match="overflow"):
            (abs(x) * 1e307).sum()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        x /= x - x
    np.testing.assert_array_equal(np.asarray(x), A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            x /= x - x
        with np.errstate(all="ignore"):
            1 / (x - x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(x), A / (A - A))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda xp, x: x + xp.ones(5),
        lambda xp, x: x @ x,
        lambda xp, x: x.sum(axis=2),
        lambda xp, x: x.__setitem__((slice(None), 0), x),
        lambda xp, x: x.__iadd__(1j),
        lambda xp, x: x & 1,
        lambda xp, x: (x > 0) - (x > 1),
        lambda xp, x: x.astype("u1") + 300,
        lambda xp, x: x[7],
    ],
)
def test_what_is_wrong_raises_numpys_error_each_time(wrong: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(Exception) as expected:
        wrong(np, np.abs(A))
    x = computed(np.abs(A))
    for _ in range(3):
        with pytest.raises(expected.type):
            wrong(dx, x)
        np.testing.assert_array_equal(np.asarray(x), np.abs(A))


def test_arguments_that_are_equal_but_not_the_same_are_told_apart() -> None:
    x = computed(A)
    for _ in range(3):
        x.sum(axis=1, keepdims=True)
        x + 1
    with pytest.raises(TypeError):
        x.sum(axis=1.0)  # type: ignore[arg-type]
    assert (dx.asarray([1, 2]) + 0 + True).dtype == (np.array([1, 2]) + True).dtype
    yes = dx.asarray([True]) | False
    assert (yes + True).dtype == bool
    assert (yes + 1).dtype == np.int64


def test_options_that_need_more_than_a_node_are_heeded_each_time() -> None:
    x = computed(A)
    for _ in range(3):
        assert float(x.sum(initial=3)) == A.sum(initial=3)
        np.testing.assert_array_equal(
            np.asarray(dx.max(x, axis=1, initial=1, keepdims=True)), A.max(1, initial=1)[:, None]
        )
        out = dx.zeros(4)
        dx.sum(x, axis=1, out=out)
        np.testing.assert_array_equal(np.asarray(out), A.sum(1))


def test_a_deleted_array_is_an_error_and_its_results_are_not() -> None:
    x = computed(A)
    y = x + 1
    x.delete()
    for use in (lambda: x + 1, lambda: float(x[0, 0]), lambda: x.__setitem__(0, 1), lambda: x.sum(), lambda: x.shape):
        with pytest.raises(dx.errors.DeletedArrayError):
            use()
    np.testing.assert_array_equal(np.asarray(y), A + 1)


def test_a_large_matrix_meets_a_vector_at_the_call_and_a_larger_product_waits() -> None:
    a = np.ones((1024, 1024))
    x, v = dx.asarray(a), computed(np.ones(1024))
    for _ in range(3):
        w = x @ v
        assert is_block(w)
    np.testing.assert_array_equal(np.asarray(w), a @ np.ones(1024))
    assert not is_block(x @ x)
    assert not is_block(x + 1)


def test_a_write_keeps_the_layout_that_was_asked_for() -> None:
    x, y = dx.asarray(A, layout="F"), dx.asarray(A, team=dx.Team((1,), ("T",), members=(0,)), sharding=("T", None))
    for z in (x, y):
        layout, sharding = z.layout, z.sharding
        for k in range(3):
            z[1, 2:] = k
            z += 1
            z[0] = z[1]
        assert (z.layout, z.sharding) == (layout, sharding)
    assert x.layout == "F"
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_numbers_stay_numbers_and_arrays_without_axes_arrays() -> None:
    s = computed(A).sum()
    t = s
    s += 1
    assert float(t) == A.sum()
    assert float(s) == A.sum() + 1
    x = dx.asarray(1.0)
    y = x
    x += 1
    x[...] = x + 1
    x += 1
    assert float(y) == 4


@pytest.mark.parametrize("make", ["in place", "whole"])
def test_readers_in_other_threads_see_whole_versions(make: str) -> None:
    x = computed(np.zeros(30_000))
    torn: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            low, high = np.asarray(x + 0)[[0, -1]]
            if low != high or float((x - x).sum()):
                torn.append((low, high))

    threads = [threading.Thread(target=read) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for t in threads:
        t.start()
    try:
        for k in range(300):
            if make == "whole":
                x += 1
            else:
                x[...] = float(k)
                x.__dx_node__()  # readers find a block, or a node
    finally:
        sys.setswitchinterval(before)
        done.set()
        for t in threads:
            t.join()
    assert not torn


def test_writes_of_several_threads_are_all_done() -> None:
    x = computed(np.zeros((4, 5_000)))
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        barrier.wait()
        for _ in range(50):
            x[k] += 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(np.asarray(x), np.full((4, 5_000), 50.0))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_call, "MOST_KNOWN", 8)
    for n in range(1, 40):
        assert float((computed(np.ones(n)) * 2).sum()) == 2 * n
        assert len(small.found_in(dx.ones(1)._env)) <= 8


# -------------------------------------------------------------------------------------------- random programs

SLICES = st.tuples(st.integers(0, 3), st.integers(1, 6), st.sampled_from([1, 2, -1]))
STATEMENT = st.tuples(
    st.sampled_from(["add", "view", "iadd", "set", "fill", "sum", "matmul", "copy", "wait", "number", "transpose"]),
    st.integers(0, 9),
    st.integers(0, 9),
    SLICES,
    SLICES,
)


def _part(x: Any, rows: tuple[int, int, int], columns: tuple[int, int, int]) -> Any:
    index = tuple([slice(a, a + n) for a, n, _ in (rows, columns)])
    return x[index][:: rows[2], :: columns[2]]


def _run(xp: Any, program: list[Any], new: Callable[[Any], Any]) -> list[Any]:
    """Run statements on 6 x 6 arrays and views of them; what does not broadcast is left out, as NumPy says."""
    live = [new(np.arange(36.0).reshape(6, 6) - 9), new(np.linspace(-1, 1, 36).reshape(6, 6))]
    seen: list[Any] = []
    for kind, i, j, rows, columns in program:
        x, y = live[i % len(live)], live[j % len(live)]
        fits = x.shape == y.shape
        if kind == "view":
            live.append(_part(x, rows, columns))
        elif kind == "transpose":
            live.append(x.T)
        elif kind == "add" and fits:
            live.append(x * 0.5 + y)
        elif kind == "iadd" and fits:
            x -= 0.25 * y
        elif kind == "set" and fits:
            x[...] = y
        elif kind == "fill":
            _part(x, rows, columns)[...] = float(i)
        elif kind == "sum" and x.shape[0]:
            live.append(x + x.sum(axis=0))
        elif kind == "matmul" and fits and x.shape[0] == x.shape[1]:
            live.append((x @ y) / 64)
        elif kind == "copy":
            live.append(x.copy())
        elif kind == "wait" and xp is dx:
            x.__dx_node__()  # from now on the version has a node
        elif kind == "number" and x.size:
            seen.append(float(x[0, 0]))
        live = live[-10:]
    return [*[np.asarray(x) for x in live], seen]


@contextmanager
def every_array_is_large() -> Iterator[None]:
    """Let updates compute into the memory that they write at any size."""
    small.found_in(dx.ones(1)._env).clear()
    with ExitStack() as stack:
        for module in (at_call, ready):
            stack.enter_context(mock.patch.object(module, "SMALLEST", 1))
        yield
    small.found_in(dx.ones(1)._env).clear()


@pytest.mark.parametrize(("eager", "large"), [(0, False), (2 << 20, False), (2 << 20, True)])
@given(st.lists(STATEMENT, max_size=14))
def test_random_programs_on_views_and_in_place(eager: int, large: bool, program: list[Any]) -> None:
    expected = _run(np, program, lambda host: host.copy())
    with (
        np.errstate(all="ignore"),
        dx.config.set(eager_bytes=eager),
        every_array_is_large() if large else nullcontext(),
    ):
        found = _run(dx, program, lambda host: dx.asarray(host) + 0)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_a_large_update_is_computed_into_the_memory_that_it_writes() -> None:
    host = np.arange(60_000.0).reshape(200, 300)
    assert host.nbytes > SMALLEST
    x, y = computed(host), computed(host + 1)
    where = address(x)
    for z, w in ((x, y), (host, host + 1)):
        z += w
        z[1:] *= z[:-1]  # which it overlaps
        z.T[:] -= 1
    assert address(x) == where
    np.testing.assert_array_equal(np.asarray(x), host)
    kept = x.copy()
    x += 1  # the copy has the elements too
    assert address(x) != where
    np.testing.assert_array_equal(np.asarray(kept), host)
    np.testing.assert_array_equal(np.asarray(x), host + 1)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        x /= 0 * x
    np.testing.assert_array_equal(np.asarray(x), host + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            x[0] /= 0 * x[0]
    assert np.isinf(np.asarray(x)[0]).all()  # as numpy's


@pytest.mark.parametrize("value", [[7], [[7]], [7, 8]])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_an_element_is_no_place_for_an_array(shape: tuple[int, ...], value: Any) -> None:
    x, host = computed(np.ones(shape, int)), np.ones(shape, int)
    index = (0,) * len(shape)
    with pytest.raises(ValueError) as expected:
        host[index] = np.array(value)
    with pytest.raises(ValueError, match=str(expected.value).split(".")[0]):
        x[index] = computed(np.array(value))
    np.testing.assert_array_equal(np.asarray(x), host)


@pytest.mark.parametrize(
    ("left", "right"), [(np.array([1, 2, 3]), np.array([0, 0, 0])), (np.array([6.0]), np.array([0.0, 3.0]))]
)
def test_what_does_not_fit_is_refused_before_anything_is_computed(left: Any, right: Any) -> None:
    """NumPy says that it does not fit, not that a number was divided by zero."""
    x, y, host = computed(left), computed(right), left.copy()
    with np.errstate(all="raise"):
        with pytest.raises(Exception) as expected:
            host /= right
        with pytest.raises(type(expected.value)):
            x /= y
    np.testing.assert_array_equal(np.asarray(x), left)


OPERANDS = [
    np.arange(12.0).reshape(3, 4),
    np.arange(12, dtype="i2").reshape(4, 3).T,
    np.arange(24, dtype="f4").reshape(6, 4)[::-2],
    np.array([[True, False, True, True]]),
    np.zeros((3, 0, 4), "c8"),
    np.arange(12, dtype=">f8").reshape(3, 4),
    np.array(2.5),
    np.ma.masked_array(np.arange(4.0), [0, 0, 1, 0]).data,
    np.arange(4, dtype="m8[s]"),
]


@pytest.mark.parametrize("other", OPERANDS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "greater", "power", "matmul", "maximum"])
def test_arrays_of_numpy_are_operands_as_our_own_are(name: str, other: Any) -> None:
    a = np.arange(12.0).reshape(3, 4) + 1
    x = dx.asarray(a)
    ufunc = getattr(np, name)

    def outcome(call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except (TypeError, ValueError) as error:
            return type(error)

    for _ in range(3):
        for ours, operands in [((x, other), (a, other)), ((other, x), (other, a)), ((x[1:2], other), (a[1:2], other))]:
            with np.errstate(all="ignore"):
                found, expected = outcome(ufunc, *ours), outcome(ufunc, *operands)
            if isinstance(expected, type):
                assert isinstance(found, type) and issubclass(found, expected)
            else:
                assert_equal(found, expected)


def test_what_is_made_of_an_array_of_numpy_is_made_at_the_call_and_has_its_own_memory() -> None:
    a, b = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4) + 5
    x = dx.asarray(a)
    for made, expected in [
        (lambda: x + b, a + b),
        (lambda: b[::-1] * x, b[::-1] * a),
        (lambda: x @ b.T, a @ b.T),
        (lambda: b.T @ x, b.T @ a),
        (lambda: np.maximum(b, x), b),
    ]:
        for _ in range(3):
            found = made()
            assert found._base.block is not None
            assert not np.shares_memory(found._base.block, b)
            np.testing.assert_array_equal(np.asarray(found), expected)
    total, last = x + b, b.copy()
    b[:] = 0
    np.testing.assert_array_equal(np.asarray(total), a + last)


def test_an_update_by_a_view_of_its_own_elements_reads_them_before_it_writes() -> None:
    a = np.arange(12.0)
    x = dx.asarray(a)
    for _ in range(3):
        seen = np.asarray(x)
        before = seen.copy()
        x += seen[::-1]
        np.testing.assert_array_equal(np.asarray(x), before + before[::-1])
    y = dx.asarray(a)
    y[1:] += np.asarray(y)[:-1]
    np.testing.assert_array_equal(np.asarray(y), [0, *(a[1:] + a[:-1])])


@pytest.mark.parametrize("other", [np.arange(3, dtype="g"), np.longdouble(1), np.arange(3, dtype="G")])
def test_long_doubles_are_refused_by_comparisons_too(other: Any) -> None:
    x = dx.asarray(np.arange(3.0))
    for compared in (lambda: x == other, lambda: x != other, lambda: x < other):
        with pytest.raises(TypeError, match="not supported"):
            compared()


def test_a_few_random_numbers_are_made_when_they_are_asked_for() -> None:
    rng, other = dx.random.default_rng(3), dx.random.default_rng(3)
    draws: tuple[Callable[[Any], Any], ...] = (
        lambda rng: rng.random(),
        lambda rng: rng.normal(2, 3, size=(4, 5)),
        lambda rng: rng.integers(10, size=7),
        lambda rng: rng.poisson(3.5, size=7),
    )
    for draw in draws:
        x = draw(rng)
        assert is_block(x)
        assert is_block(x + 1)
        with dx.config.set(eager_bytes=0):
            waits = draw(other)
        assert not is_block(waits)
        assert_equal(waits, np.asarray(x))
    assert not is_block(rng.random(small.SENT_NBYTES // 8 + 1))
    assert not is_block(rng.random(8, sharding=("T",), team=dx.Team(2, "T")))


@pytest.mark.parametrize("shape", [(256, 128), (40, 50, 60)])
def test_what_is_turned_is_its_own_and_shares_nothing(shape: tuple[int, ...]) -> None:
    host = np.random.default_rng(0).standard_normal(shape)
    x = computed(host)
    for _ in range(3):
        y, z = dx.fft.fft(x, axis=0), dx.fft.fft(x, axis=0)
        assert y._base.block is not None
        assert is_ours(y._base.block)  # so that it is written in place
        assert not dx.shares_memory(y, z)
        y[...] = 0
        y += x
        np.testing.assert_array_equal(np.asarray(z), np.fft.fft(host, axis=0))
    np.testing.assert_array_equal(np.asarray(x), host)


@pytest.mark.parametrize(
    "function",
    [lambda xp, x: xp.cross(x[:, :3], x[:, 3:6]), lambda xp, x: xp.trace(x), lambda xp, x: xp.einsum("ii", x)],
    ids=["cross", "trace", "einsum"],
)
def test_little_that_is_seen_of_a_large_array_is_computed_at_the_call(function: Any) -> None:
    host = np.arange(1_000_000.0).reshape(1000, 1000)
    x = dx.asarray(host)
    for _ in range(2):
        function(dx, x)
    with counting() as counts:
        made = function(dx, x)
    assert counts.inline == 1
    np.testing.assert_allclose(made, function(np, host), rtol=1e-13)
