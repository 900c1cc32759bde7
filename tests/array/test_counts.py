"""How much is done: tasks, plans and messages of whole scripts, counted exactly."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting


@pytest.fixture
def team() -> dx.Team:
    return dx.Team((4,), ("R",))


def rows(values: np.ndarray, team: dx.Team) -> dx.DistArray:
    return dx.asarray(values, team=team, sharding=("R",) + (None,) * (values.ndim - 1))


def test_making_views_submits_nothing_and_moves_nothing(team: dx.Team) -> None:
    """B-5."""
    x = rows(np.arange(48.0).reshape(16, 3), team)
    x.compute()
    with counting() as c:
        views = [
            x[2:9],
            x[::-2],
            x[3],
            x[..., None],
            x.T,
            x[1:14:3, ::-1],
            dx.flip(x),
            x.reshape(8, 6),
            dx.broadcast_to(x, (2, 16, 3)),
            dx.expand_dims(x, axis=0),
            x[:1].squeeze(axis=0),
            dx.diagonal(x),
            dx.permute_dims(x, (1, 0))[1],
        ]
    assert (c.tasks, c.evaluations, c.messages, c.allocated_bytes) == (0, 0, 0, 0)
    assert all(dx.shares_memory(x, v) for v in views)


def test_what_is_held_is_computed_once(team: dx.Team) -> None:
    """B-18."""
    a = rows(np.arange(16.0), team)
    a.compute()
    b = a + 1
    c = b * 2
    d = b * 3
    with counting() as count:
        assert float(c.sum()) == float(((np.arange(16) + 1) * 2).sum())
        assert float(d.sum()) == float(((np.arange(16) + 1) * 3).sum())
    added = {part: n for (name, part), n in count.kernels.items() if name == "add"}
    assert added == {(0,): 1, (1,): 1, (2,): 1, (3,): 1}


def test_what_died_before_the_observation_is_not_kept(team: dx.Team) -> None:
    """B-18: a local that is gone is fused away; nothing of it is stored."""
    a = rows(np.arange(16.0), team)
    a.compute()
    b = a + 1
    c = b * 2
    del b
    with counting() as count:
        c.compute()
    assert count.by_class == {"tile": 4, "project": 0, "piece": 0, "combine": 0}


def test_a_convergence_loop_plans_once_and_computes_nothing_twice(team: dx.Team) -> None:
    dx.plan_cache_clear()
    x = rows(np.random.default_rng(0).random((64, 8)), team)
    error, steps = 1.0, []
    while error > 1e-6:
        with counting() as c:
            new = dx.sqrt(x * 0.5 + 0.1)
            error = float(dx.max(dx.abs(new - x)))
            x = new
        steps.append(c)
    assert len(steps) > 5
    assert sum(c.planner_calls for c in steps[2:]) == 0
    for c in steps:
        assert c.by_class["tile"] == 4 and c.kernels["sqrt", (0, 0)] == 1


@pytest.mark.parametrize("n_statements", [5, 17, *[pytest.param(n, marks=pytest.mark.slow) for n in (7, 11)]])
def test_a_long_loop_has_at_most_three_plans(team: dx.Team, n_statements: int) -> None:
    """B-28: whatever the length of the body, windows begin at the same phase of the loop."""
    dx.plan_cache_clear()
    x, y = rows(np.arange(64.0), team), rows(np.ones(64), team)
    a, b = np.arange(64.0), np.ones(64)
    iterations = 2200 // n_statements
    with counting() as c:
        for _ in range(iterations):
            for k in range(n_statements):
                if k % 3 == 0:
                    x = x * 0.5 + y
                elif k % 3 == 1:
                    y[1:-1] = y[2:] * 0.25 + x[:-2]
                else:
                    x[3:9] += 1
        total = float((x + y).sum())
    for _ in range(iterations):
        for k in range(n_statements):
            if k % 3 == 0:
                a = a * 0.5 + b
            elif k % 3 == 1:
                b[1:-1] = b[2:] * 0.25 + a[:-2]
            else:
                a[3:9] += 1
    np.testing.assert_allclose(total, (a + b).sum(), rtol=1e-12)
    assert c.evaluations > 3
    assert c.planner_calls <= 3


def test_a_recurrence_over_rows_has_at_most_three_plans_per_pattern_of_tiles(team: dx.Team) -> None:
    dx.plan_cache_clear()
    out = dx.zeros((1000, 8), team=team, sharding=("R", None))
    out[0] = 1.0
    expected = np.zeros((1000, 8))
    expected[0] = 1.0
    with counting() as c:
        for t in range(1, 1000):
            out[t] = out[t - 1] * 0.5 + 1
        result = np.asarray(out)
    for t in range(1, 1000):
        expected[t] = expected[t - 1] * 0.5 + 1
    np.testing.assert_array_equal(result, expected)
    patterns = 4 + 3  # inside each of the tiles, and across each border
    assert c.planner_calls <= 3 * patterns


def test_elimination_has_at_most_three_plans_per_pattern_of_tiles(team: dx.Team) -> None:
    dx.plan_cache_clear()
    n = 120
    values = np.random.default_rng(0).random((n, n)) + n * np.eye(n)
    a, b = rows(values, team), values.copy()
    with dx.config.set(window=100), counting() as c:
        for k in range(n - 1):
            a[k + 1 :, k + 1 :] -= (a[k + 1 :, k] / a[k, k])[:, None] * a[k, k + 1 :]
        result = np.asarray(a)
    for k in range(n - 1):
        b[k + 1 :, k + 1 :] -= (b[k + 1 :, k] / b[k, k])[:, None] * b[k, k + 1 :]
    np.testing.assert_allclose(result, b, rtol=1e-12, atol=1e-12)
    assert c.evaluations > 3
    assert c.planner_calls <= 3 * 4


@pytest.mark.parametrize("window", [1, 7, 64])
def test_plans_do_not_depend_on_scalars(team: dx.Team, window: int) -> None:
    """B-29: values of Python scalars are not in the key."""
    dx.plan_cache_clear()
    x = rows(np.arange(16.0), team)
    with dx.config.set(window=window), counting() as c:
        for k in range(200):
            x = x * 1.5 - k
        x.compute()
    assert c.planner_calls <= 3


def test_a_loop_of_ten_thousand_updates_keeps_nothing(team: dx.Team) -> None:
    """B-17."""
    from distarray.expr.expr import Expr

    def n_nodes() -> int:
        gc.collect()
        return sum(1 for o in gc.get_objects() if type(o) is Expr)

    before = n_nodes()  # of other tests that run in this process
    x = rows(np.zeros(16), team)
    counts = []
    for k in range(10_000):
        x += 1
        if k % 2500 == 2499:
            counts.append(n_nodes() - before)
    assert float(x[3]) == 10_000
    assert max(counts) <= 2 * dx.config.get("window")


def test_updates_in_place_keep_their_blocks(team: dx.Team) -> None:
    """B-4: each block's buffer is the same as before when nobody needs the old version."""
    x = rows(np.arange(16.0), team)
    x[2:14] = 0.0  # the blocks are now ours, no longer parts of the snapshot
    x.compute()
    before = [x.local(m).ctypes.data for m in range(4)]
    x += 1
    x[3:9] *= 2
    x[::5] = -1.0
    x.compute()
    assert [x.local(m).ctypes.data for m in range(4)] == before


def test_writes_at_positions_are_made_in_place_where_nobody_reads_the_old_version(team: dx.Team) -> None:
    """B-4: of repeated positions, and where what is written reads other tiles of the base, values are numpy's."""
    at, other = np.array([3, 15, 3]), np.array([4, 0, 15])
    expected = np.arange(16.0) + 1
    x = rows(np.arange(16.0), team) + 1
    expected[at] = expected[other]
    x[dx.asarray(at, team=team)] = x[dx.asarray(other, team=team)]
    with counting() as c:
        np.testing.assert_array_equal(np.asarray(x), expected)
    assert c.allocated_bytes == (16 + 3) * 8  # of the sum and of what is written: the write makes no block
    y = rows(np.arange(16.0), team) + 1
    before = y.copy()
    y[dx.asarray(at, team=team)] = 7.0
    found = [np.asarray(z) for z in dx.compute(y, before)]
    np.testing.assert_array_equal(found[1], np.arange(16.0) + 1)
    assert found[0][at].tolist() == [7, 7, 7]


def test_allocated_bytes_are_those_of_the_blocks_that_tasks_make(team: dx.Team) -> None:
    x = rows(np.arange(16.0), team)
    x[:] = x * 2
    x.compute()
    with counting() as c:
        y = x + 1
        y.compute()
    assert c.allocated_bytes == 16 * 8
    with counting() as c:
        x[3:9] *= 2  # in place: nobody else has the blocks
        x.compute()
    assert c.allocated_bytes == 0
    held = x.copy()
    with counting() as c:
        x[3:9] *= 2
        x.compute()
    assert c.allocated_bytes == 3 * 4 * 8  # only the touched tiles are copied
    assert float(held[3]) * 2 == float(x[3])


def test_a_pinned_version_keeps_its_blocks_and_only_touched_ones_are_copied(team: dx.Team) -> None:
    """B-4, B-7."""
    x = rows(np.arange(16.0), team)
    old = x.copy()
    x[0] = 100.0
    assert float(x[0]) == 100.0 and float(old[0]) == 0.0
    np.testing.assert_array_equal(np.asarray(old), np.arange(16.0))


def test_dead_handles_free_their_blocks(team: dx.Team) -> None:
    x = rows(np.arange(16.0), team)
    y = x + 1
    y.compute()
    block = weakref.ref(y.local(0).base if y.local(0).base is not None else y.local(0))
    del y
    gc.collect()
    assert block() is None


def test_what_a_loop_makes_beside_what_it_observes_runs_once_it_is_a_window(team: dx.Team) -> None:
    """B-17: a sum of steps that nobody looks at, in a loop that ends by a number."""
    from distarray.expr.expr import postorder

    dx.plan_cache_clear()
    x = rows(np.arange(16.0), team)
    found, total, most = dx.zeros_like(x), 0.0, 0
    seen, expected = np.zeros(16), np.arange(16.0)
    with dx.config.set(window=30), counting() as c:
        for _ in range(200):
            x = x * 0.99
            found[x > 5] += 1
            total += float(x[15])
            most = max(most, len(postorder([found.__dx_node__()])))
    for _ in range(200):
        expected = expected * 0.99
        seen[expected > 5] += 1
    np.testing.assert_array_equal(found, seen)
    assert most < 100
    assert c.planner_calls < 60
