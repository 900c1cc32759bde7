"""Loops that update several arrays and look at one of them in each step: no step makes again what earlier ones made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.array import window
from distarray.expr.expr import Expr, postorder
from distarray.kernels.buffers import BufferPool
from distarray.runtime import retention
from distarray.testing import counting

N = 24
TEAM = dx.Team((3,), ("x",))
STEPS = 30


def copies(u: Any, v: Any) -> tuple[Any, Any]:
    un, vn = u.copy(), v.copy()
    u[1:-1, 1:-1] = un[1:-1, 1:-1] * 0.9 + 0.1 * vn[:-2, 1:-1]
    v[1:-1, 1:-1] = vn[1:-1, 1:-1] * 0.9 + 0.1 * un[:-2, 1:-1]
    u[0, :] = 0
    v[0, :] = v[1, :]
    v[-1, :] = v[-2, :]
    return u, v


def views(u: Any, v: Any) -> tuple[Any, Any]:
    u[1:] = u[1:] * 0.9 + v[:-1] * 0.1
    v[1:] = v[1:] * 0.9 + u[:-1] * 0.1
    return u, v


def whole(u: Any, v: Any) -> tuple[Any, Any]:
    u *= 0.9
    u += 0.1 * v
    v *= 0.9
    v += 0.1 * u
    return u, v


def functions(u: Any, v: Any) -> tuple[Any, Any]:
    return u * 0.9 + 0.1 * v, v * 0.9 + 0.1 * u


LOOPS = [copies, views, whole, functions]


@pytest.fixture(autouse=True)
def deferred() -> Iterator[None]:
    with dx.config.set(eager_bytes=0):
        yield


def fields() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.random((N, N)) for _ in range(2)]


def n_pending(*arrays: Any) -> int:
    return sum(node.memo is None for node in postorder([x.__dx_node__() for x in arrays]))


def run(step: Callable[[Any, Any], tuple[Any, Any]], u: Any, v: Any) -> tuple[list[float], list[int], Any]:
    sums, waiting = [], []
    for _ in range(STEPS):
        u, v = step(u, v)
        sums.append(float(u.sum()))
        waiting.append(0 if isinstance(u, np.ndarray) else n_pending(u, v))
    return sums, waiting, v


@pytest.mark.parametrize("team", [None, TEAM])
@pytest.mark.parametrize("step", LOOPS)
def test_what_is_not_looked_at_waits_for_one_step(step: Any, team: dx.Team | None) -> None:
    expected, _, there = run(step, *fields())
    sums, waiting, v = run(step, *[dx.asarray(a, team=team) for a in fields()])
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    assert max(waiting) == max(waiting[:6]) <= 40  # a step is kept at every second look
    np.testing.assert_allclose(np.asarray(v), there, rtol=1e-12)


@pytest.mark.parametrize("step", LOOPS)
def test_versions_to_fall_back_to_are_few(step: Any) -> None:
    before = sum(isinstance(o, Expr) for o in gc.get_objects())
    _, _, v = run(step, *[dx.asarray(a) for a in fields()])
    gc.collect()
    assert sum(isinstance(o, Expr) for o in gc.get_objects()) - before < 40
    assert len(v._base.history) <= 7


@pytest.mark.cluster
@pytest.mark.parametrize("step", LOOPS)
def test_tasks_of_a_step_do_not_grow_on_a_cluster(cluster4: Any, step: Any) -> None:
    expected, _, _ = run(step, *fields())
    u, v = [dx.asarray(a, sharding=("x", None)) for a in fields()]
    with dx.config.set(block_bytes=0):
        counts = []
        for k in range(12):
            with counting() as counted:
                u, v = step(u, v)
                assert float(u.sum()) == pytest.approx(expected[k], rel=1e-12)
            counts.append((counted.tasks, n_pending(u, v)))
    assert set(counts[6:]) == set(counts[4:6])


def test_a_write_that_fails_falls_back_to_what_was_kept() -> None:
    u, v = [dx.asarray(a) for a in fields()]
    for _ in range(5):
        u, v = whole(u, v)
        float(u.sum())
    good = np.asarray(v.copy()) * 1e308
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        v *= 1e308
        v *= 1e308
        np.asarray(v)
    np.testing.assert_array_equal(np.asarray(v), good)


def test_accumulators_that_nobody_looks_at_hold_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FITS", 0)
    x, h = fields()
    a, b = dx.asarray(x), dx.asarray(h)
    held = []
    for _ in range(80):
        g = 2 * x - 1
        h = 0.99 * h + 0.01 * g * g
        x = x - 0.01 * g
        c = 2 * a - 1
        b = 0.99 * b + 0.01 * c * c
        a = a - 0.01 * c
        assert float(a.sum()) == pytest.approx(float(x.sum()), rel=1e-12)
        held.append(len([n for n in postorder([b.__dx_node__()]) if n.memo is not None]))
    assert max(held) < 40  # of 80 versions of `a`
    np.testing.assert_allclose(np.asarray(b), h, rtol=1e-12)


def test_several_results_of_one_operation_are_no_value_to_keep() -> None:
    a = np.random.default_rng(0).integers(0, 9, 60)
    x = dx.asarray(a, team=TEAM)
    values, counts = dx.unique_counts(x)
    order = dx.argsort(counts)
    float(dx.sum(x))
    n = int(values.size)  # what is counted needs what is pending, and so does the order
    assert n == len(np.unique(a))
    np.testing.assert_array_equal(np.asarray(counts)[np.asarray(order)], np.sort(np.unique(a, return_counts=True)[1]))
    found = dx.intersect1d(x, x + 1, return_indices=True)
    for one, expected in zip(found, np.intersect1d(a, a + 1, return_indices=True), strict=True):
        np.testing.assert_array_equal(np.asarray(one), expected)


def test_what_is_kept_for_others_is_no_more_than_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FITS", 0)
    x = dx.asarray(fields()[0])
    waiting = []
    for k in range(9):
        made = x * (k + 1)
        waiting.append([made.sum(), made.max(), made.min()])
        del made
    for k in range(2):
        assert [float(few[k]) for few in waiting]
    for few in waiting:
        assert sum(n.memo is not None for n in postorder([few[2].__dx_node__()])) == 1  # `x`
        assert float(few[2]) == float(x.min()) * (waiting.index(few) + 1)


@pytest.mark.cluster
def test_what_may_fail_takes_nothing_with_it_that_is_kept_for_others(cluster4: Any) -> None:
    def raises(block: Any) -> Any:
        raise ValueError("no")

    with dx.config.set(errors="deferred"):
        x = dx.asarray(np.ones((24, 24)), sharding=("x", None))
        p = x * 2
        v = p + 1
        m = dx.map_blocks(raises, x, dtype=float)
        w = p + m
        del p
        for failing in (m, w):
            with pytest.raises(ValueError, match="no"):
                np.asarray(failing)
        np.testing.assert_array_equal(np.asarray(v), 3.0)


def test_what_waits_beside_looks_is_a_small_window_too() -> None:
    x, y = dx.asarray(np.ones(5)), dx.asarray(np.ones(5))
    acc = dx.zeros(5)
    waiting = []
    with dx.config.set(window=8):
        for k in range(100):
            acc = acc + x
            y = y * 0.5
            assert float(y[0]) == 0.5 ** (k + 1)
            waiting.append(n_pending(acc))
    assert max(waiting) <= 8
    np.testing.assert_array_equal(np.asarray(acc), 100.0)


@pytest.mark.parametrize("team", [None, TEAM])
@pytest.mark.parametrize("step", LOOPS)
def test_what_replaces_what_is_read_is_made_in_the_same_run(step: Any, team: dx.Team | None) -> None:
    expected, _, there = run(step, *fields())
    with dx.config.set(block_bytes=0):
        sums, waiting, v = run(step, *[dx.asarray(a, team=team) for a in fields()])
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    assert set(waiting[2:]) == {0}  # the arrays that are given are not ours to replace
    np.testing.assert_array_equal(np.asarray(v), there)


def test_both_results_of_a_pass_lie_where_their_last_versions_lay() -> None:
    with dx.config.set(block_bytes=0):
        u, v = [dx.asarray(a, copy=True) for a in fields()]

        def places() -> list[int]:
            return [x.__dx_node__().stored.blocks[0].ctypes.data for x in (u, v)]

        float((u + v).sum())
        seen = []
        for _ in range(4):
            u += 0.1 * v
            v -= 0.1 * u
            float(u.sum())
            seen.append(places())
    assert seen == seen[:1] * 4 and len(set(seen[0])) == 2


def test_statistics_of_what_is_made_are_made_in_its_pass() -> None:
    a, b = fields()
    with dx.config.set(block_bytes=0):
        y = dx.sqrt(dx.asarray(a)) + b
        total, most = y.sum(), y.max(axis=0)
        with counting() as counted:
            assert float(total) == pytest.approx((np.sqrt(a) + b).sum(), rel=1e-12)
        assert most.__dx_node__().memo is not None
        assert counted.evaluations == 1
    np.testing.assert_array_equal(np.asarray(most), (np.sqrt(a) + b).max(axis=0))


def another_array(x: Any) -> Any:
    return x + 1  # as large as `x`, which stays


def of_other_arrays(x: Any) -> Any:
    del x
    return dx.asarray(fields()[1], copy=True) * 2


def of_a_product(x: Any) -> Any:
    return (x @ x.T).sum(axis=0)


@pytest.mark.parametrize("beside", [another_array, of_other_arrays, of_a_product])
def test_what_takes_memory_or_passes_of_its_own_waits(beside: Callable[[Any], Any]) -> None:
    with dx.config.set(block_bytes=0):
        x = dx.asarray(fields()[0], copy=True) * 2
        other = beside(x)
        float(x.sum())
        assert other.__dx_node__().memo is None


def test_explain_says_what_is_made_along() -> None:
    with dx.config.set(block_bytes=0):
        u, v = [dx.asarray(a, copy=True) for a in fields()]
        float((u + v).sum())
        u += 0.1 * v
        v -= 0.1 * u
        s = u.sum()
        said = dx.explain(s)
        with counting() as counted:
            float(s)
    assert counted.tasks == said.tasks
    assert {r.operation: r.is_target for r in said.results} == {"sum": True, "subtract": False, "add": False}


def is_made(x: Any) -> bool:
    return x.__dx_node__().memo is not None


@pytest.mark.parametrize("create", [lambda: dx.random.default_rng(0).random((400, 300)), lambda: fields_of_rows()])
def test_a_look_at_a_row_makes_no_statistics_of_all_rows(create: Callable[[], Any]) -> None:
    with dx.config.set(block_bytes=0):
        x = create()
        row, total = x[0] + 1, x.sum()
        del x
        float(row.sum())
        assert not is_made(total)


def fields_of_rows() -> Any:
    return dx.exp(dx.asarray(np.random.default_rng(0).random((400, 300))))


def test_a_look_at_a_row_makes_no_update_of_all_rows() -> None:
    with dx.config.set(block_bytes=0):
        u, v = [dx.asarray(a, copy=True) for a in fields()]
        v -= u
        float(u[0].sum())
        assert not is_made(v)


def test_of_several_arrays_one_replaces_what_all_are_made_of() -> None:
    with dx.config.set(block_bytes=0):
        x, z, *others = [dx.asarray(a, copy=True) for a in (*fields(), *fields(), *fields())]
        made = [x * k for k in range(4)]
        chain = [made[0] + 1]
        chain.append(chain[0] + 1)
        y = sum(others, x + z)
        del x, z
        float(y.sum())
        assert list(map(is_made, made + chain)) == [True] + 5 * [False]


def test_views_are_not_made_along() -> None:
    with dx.config.set(block_bytes=0):
        x, y = [dx.asarray(a, copy=True) for a in fields()]
        view = (x + 1)[::2]
        float((x + y).sum())
        assert not is_made(view)


def test_explain_says_nothing_of_what_a_look_leaves_waiting() -> None:
    a = np.random.default_rng(0).random((2000, 600))
    for t in (1, 2):
        u, v = [dx.asarray(a, copy=True) for _ in range(2)]
        looked_at = u if t == 1 else (u * 2 - 1).sum()
        v -= u
        with dx.config.set(eager_bytes=0, **({"block_bytes": 0} if t == 1 else {})):
            assert len(dx.explain(looked_at).results) == 1
            looked_at.compute()
        assert not is_made(v)


def test_a_look_is_not_refused_for_what_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    u, v = [dx.asarray(a, copy=True) for a in fields()]
    evaluate = window.evaluate.evaluate

    def with_room_for_one(targets: Any, others: Any = tuple) -> None:
        if len(targets) > 1:
            raise dx.errors.MemoryBudgetError("no room")
        evaluate(targets, others)

    with dx.config.set(block_bytes=0):
        u += 0.1 * v
        v -= 0.1 * u
        monkeypatch.setattr(window.evaluate, "evaluate", with_room_for_one)
        a, b = fields()
        a += 0.1 * b
        assert float(u.sum()) == pytest.approx(a.sum(), rel=1e-12)
        assert not is_made(v)
        np.testing.assert_array_equal(np.asarray(v), b - 0.1 * a)


@pytest.mark.parametrize("team", [None, TEAM])
@pytest.mark.parametrize("n_given", range(12))
def test_memory_that_runs_out_midway_leaves_no_array_half_updated(
    n_given: int, team: dx.Team | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, left = BufferPool.take, [n_given]

    def take_or_run_out(*args: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise MemoryError("no more")
        return take(*args)

    def update(u: Any, v: Any) -> None:
        u += 2 * v
        v -= u
        u[1:] += v[:-1]

    a, b = fields()
    with dx.config.set(block_bytes=0):
        u, v = [dx.asarray(x, copy=True, team=team) for x in (a, b)]
        update(u, v)
        float(u.sum())
        update(a, b)
        before = a.copy(), b.copy()
        update(u, v)
        update(a, b)
        monkeypatch.setattr(BufferPool, "take", take_or_run_out)
        with suppress(MemoryError):
            float(u.sum())
        monkeypatch.setattr(BufferPool, "take", take)
        for x, old, new in zip((u, v), before, (a, b), strict=True):
            with suppress(dx.errors.BlocksLostError):
                there = np.asarray(x)
                assert any(np.allclose(there, good, rtol=1e-12, atol=1e-12) for good in (old, new))


def test_what_another_thread_has_made_meanwhile_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = window.locked
    a, b = fields()
    with dx.config.set(block_bytes=0):
        u, v = [dx.asarray(x, copy=True) for x in (a, b)]
        float((u + v).sum())
        u += 0.1 * v
        v[1:] -= 0.1 * u[:-1]

        def after_another() -> Any:
            monkeypatch.setattr(window, "locked", locked)
            thread = threading.Thread(target=lambda: np.asarray(v))
            thread.start()
            thread.join(30)
            return locked()

        monkeypatch.setattr(window, "locked", after_another)
        assert float(u.sum()) == pytest.approx((a + 0.1 * b).sum(), rel=1e-12)
    a += 0.1 * b
    b[1:] -= 0.1 * a[:-1]
    np.testing.assert_array_equal(np.asarray(v), b)
