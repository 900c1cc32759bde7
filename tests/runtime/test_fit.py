"""Plans that would hold too much work in waves: large intermediate arrays are never there as a whole."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from dask._task_spec import Task
from hypothesis import given, settings

import distarray as dx
from distarray.diagnostics.explanation import Explanation
from distarray.lower import lower
from distarray.lower.liveness import Standing, liveness
from distarray.planner.plan import Plan
from distarray.runtime import fit
from distarray.runtime.instantiate import instance_once
from distarray.runtime.planning import plan_of
from distarray.testing import counting

TEAM = dx.Team((4,), ("x",))
rng = np.random.default_rng(0)


def explained(x: Any) -> Explanation:
    plan = dx.explain(x)
    assert isinstance(plan, Explanation)
    return plan


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ xp.swapaxes(k, -1, -2) / 8.0
    weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def gated(xp: Any, x: Any, w1: Any, w3: Any, w2: Any) -> Any:
    a, b = x @ w1, x @ w3
    return (a / (1 + xp.exp(-a)) * b) @ w2


def normed(xp: Any, x: Any, w: Any, r: Any) -> Any:
    y = x @ w
    return ((y * y).sum(axis=1, keepdims=True) ** -0.5 * y) @ r


def embedded(xp: Any, table: Any, w: Any) -> Any:
    return xp.take(table, np.arange(6000) * 7 % 40, axis=0) @ w


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "attention": (attention, [(8, 300, 16)] * 3),
    "attention of one head": (attention, [(600, 16)] * 3),
    "gated": (gated, [(64, 24), (24, 3000), (24, 3000), (3000, 24)]),
    "normed": (normed, [(999, 8), (8, 700), (700, 5)]),
    "embedded": (embedded, [(40, 100), (100, 2)]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("team", [None, TEAM])
def test_what_is_larger_than_the_limit_streams(name: str, team: dx.Team | None) -> None:
    program, shapes = CASES[name]
    operands = [rng.normal(size=s) for s in shapes]
    expected = program(np, *operands)
    n = 1 if team is None else team.size
    with dx.config.set(block_bytes=0):
        lying = [(dx.asarray(a, team=team) + 0).persist() for a in operands]
        unbounded = explained(program(dx, *lying)).peak_bytes
        limit = sum(a.nbytes for a in operands) // n + unbounded // 4
        with dx.config.set(memory_limit=limit):
            result = program(dx, *lying)
            plan = explained(result)
            assert plan.peak_bytes <= limit < unbounded
            if team is not None:  # one place cuts what is larger than a tile at once
                assert any("no streams" in text for text in plan.alternatives)
            with counting() as counted:
                result.persist()
            assert counted.tasks == plan.tasks
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-10, atol=1e-12)


def test_waves_are_as_small_as_a_cache_where_elementwise_operations_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, shapes = CASES["attention"]
    operands = [rng.normal(size=s) for s in shapes]
    with dx.config.set(block_bytes=0, memory_limit=1 << 20):
        lying = [(dx.asarray(a, team=TEAM) + 0).persist() for a in operands]
        n_tasks = []
        for nbytes in (1 << 30, 1 << 17):
            monkeypatch.setattr(fit, "CACHED", nbytes)
            dx.plan_cache_clear()
            result = program(dx, *lying)
            plan = explained(result)
            assert plan.peak_bytes <= 1 << 20
            n_tasks.append(plan.tasks)
            np.testing.assert_allclose(np.asarray(result), program(np, *operands), rtol=1e-10, atol=1e-12)
    # Scores of 8 x 300 x 300 in double precision: 45 tiles are 128 KiB each.
    assert n_tasks[0] < 45 <= n_tasks[1] <= 8 * 45


def test_what_fits_does_not_stream() -> None:
    program, shapes = CASES["attention"]
    with dx.config.set(block_bytes=0):
        lying = [(dx.asarray(rng.normal(size=s), team=TEAM) + 0).persist() for s in shapes]
        plan = explained(program(dx, *lying))
    assert plan.tasks == 4  # one for each member, from the scores to the output
    assert not any("no streams" in text for text in plan.alternatives)


def test_a_plan_that_is_tried_and_fits_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = (dx.asarray(rng.normal(size=(400, 400)), team=TEAM, sharding=("x", None)) + 0).persist()
    made: list[Plan] = []
    template = lower._template
    monkeypatch.setattr(lower, "_template", lambda plan, *args: made.append(plan) or template(plan, *args))
    with dx.config.set(memory_limit=3 * x.nbytes // 2, block_bytes=0):
        np.testing.assert_array_equal(np.asarray(x.T + x), np.asarray(x).T + np.asarray(x))
        assert len(made) == 1
        for factor in (2.0, 3.0):  # what is remembered is of this plan, and for these blocks
            y = (x * factor).persist()
            np.testing.assert_array_equal(np.asarray(y.T + y), np.asarray(y).T + np.asarray(y))


def test_what_is_kept_does_not_stream() -> None:
    q, k = [(dx.asarray(rng.normal(size=(800, 8)), team=TEAM) + 0).persist() for _ in range(2)]
    with dx.config.set(block_bytes=0, memory_limit=200_000):
        scores = q @ k.T
        total = scores.sum(axis=1)
        plan = dx.explain(total, scores)
        assert plan.peak_bytes > 800 * 800 * 8 // 4
    with dx.config.set(block_bytes=0):
        dx.persist(total, scores)
        np.testing.assert_allclose(np.asarray(total), np.asarray(scores).sum(axis=1))


def test_threads_of_a_member_each_hold_a_task() -> None:
    with dx.config.set(block_bytes=0, memory_limit="1MiB"):
        q, k, v = [(dx.asarray(rng.normal(size=(8, 300, 16)), team=TEAM) + 0).persist() for _ in range(3)]
        plan, graph, env = plan_of([attention(dx, q, k, v).__dx_node__()])
        lowered = instance_once(plan, graph, env).lowered
    of_threads = [liveness(lowered, graph, is_cluster=True, n_threads=n) for n in (1, 2, 3, 10**6)]
    peaks = [max(found.peak.values()) for found in of_threads]
    resident = max(of_threads[0].resident.values())
    n_tasks = len(lowered.tasks) // 4
    assert n_tasks > 3
    # What came before lies there already, so each thread more adds what one of the tasks to come needs.
    most = peaks[0] - resident
    assert 0 < peaks[1] - peaks[0] <= peaks[2] - peaks[1] <= most
    assert peaks[2] < peaks[3] <= peaks[0] + (n_tasks - 1) * most


def test_few_waves_of_every_loop_are_tried_before_many_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[list[int], bool]] = []
    held = fit._Trials.held

    def recorded(self: fit._Trials, plan: Plan) -> fit._Held:
        n_left, found = self.n_left, held(self, plan)
        tried.append(([n for _, n in plan.stages[0].cut.waves], n_left == self.n_left))
        return found

    monkeypatch.setattr(fit._Trials, "held", recorded)
    with dx.config.set(block_bytes=0, memory_limit="2 MiB"):
        a, b = [
            (dx.asarray(rng.normal(size=(32, 9, 9, 9)), team=TEAM, sharding=("x", None, None, None)) + 0).persist()
            for _ in range(2)
        ]
        del tried[:]
        plan = explained(dx.einsum("aijk,almn->ijklmn", a, b).sum(axis=0))
    assert plan.peak_bytes <= 2 << 20
    waves = [max(ns, default=1) for ns, _ in tried if len(ns) < 2]  # else it is a stream of one that was best of these
    assert waves == sorted(waves)
    assert waves.count(2) > 3
    assert max(tried[-1][0]) == 8
    assert not any(is_free for _, is_free in tried)  # only what is known already


def test_what_a_task_reads_comes_when_all_of_it_is_made() -> None:
    """And goes after the last task at the member that reads it, while the next one runs: the scheduler says so."""
    sizes = {"large": 800, "small": 100, "beside": 50, "reads": 1, "again": 1, "late": 1}
    members = dict(zip(sizes, (0, 1, 1, 1, 1, 2), strict=True))
    reads = {"reads": ("large", "small"), "again": ("large", "small"), "late": ("again", "large")}
    keys = {name: (name, stage, 0) for stage, name in enumerate(sizes)}
    tasks = {}
    for name, n in sizes.items():  # of no kernel: each makes as much as its argument says
        task = Task(keys[name], sorted, SimpleNamespace(nbytes=n, dtype=np.dtype("i1")))
        task._dependencies = frozenset(keys[d] for d in reads.get(name, ()))
        tasks[keys[name]] = task
    lowered: Any = SimpleNamespace(
        tasks=tasks, members={keys[name]: m for name, m in members.items()}, outputs={}, drafts=()
    )
    graph: Any = SimpleNamespace(nodes=())
    found = liveness(lowered, graph, is_cluster=True)
    assert list(found.stage_peak.values()) == [800, 100, 950, 951, 902, 802]
    assert found.peak == {0: 800, 1: 951, 2: 802}
    assert liveness(lowered, graph, is_cluster=False).peak == {0: 800, 1: 150, 2: 1}
    # One worker serves two of the members: it holds what both make, and nothing travels between them.
    at_one = liveness(lowered, graph, is_cluster=True, standing=Standing(serving={0: 0, 1: 0, 2: 2}))
    assert at_one.peak == {0: 951, 2: 802}


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 4),
    members=st.integers(1, 5),
    axis=st.integers(0, 1),
    share=st.integers(2, 6),
)
def test_streams_change_no_values(sizes: tuple[int, ...], members: int, axis: int, share: int) -> None:
    m, k, n, r = sizes
    operands = [rng.normal(size=s) for s in ((m, k), (k, n), (n, r), (m, n))]

    def program(xp: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        y = xp.exp(-((a @ b) ** 2)) + d
        return (y / (1 + (y * y).sum(axis=axis, keepdims=True))) @ c

    expected = program(np, *operands)
    with dx.config.set(block_bytes=0):
        lying = [(dx.asarray(a, team=dx.Team((members,), ("x",))) + 0).persist() for a in operands]
        unbounded = explained(program(dx, *lying)).peak_bytes
        limit = sum(a.nbytes for a in (*operands, expected)) // members + unbounded // share
        with dx.config.set(memory_limit=limit):
            result = program(dx, *lying)
            held = explained(result).peak_bytes
            assert held <= unbounded
            if held > limit:
                with pytest.raises(dx.MemoryBudgetError):
                    result.persist()
                return
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.cluster
def test_streams_on_a_cluster(cluster4: Any) -> None:
    program, shapes = CASES["attention of one head"]
    operands = [rng.normal(size=s) for s in shapes]
    with dx.config.set(block_bytes=0):
        lying = [(dx.asarray(a) + 0).persist() for a in operands]
        unbounded = explained(program(dx, *lying)).peak_bytes
        with dx.config.set(memory_limit=unbounded // 2):
            result = program(dx, *lying)
            plan = explained(result)
            assert plan.peak_bytes <= unbounded // 2
            with counting() as counted:
                result.persist()
            assert counted.bytes_moved == plan.moved_bytes
            np.testing.assert_allclose(np.asarray(result), program(np, *operands), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("team", [None, TEAM])
def test_a_limit_that_is_set_holds_or_nothing_runs(team: dx.Team | None) -> None:
    a = rng.normal(size=(400, 400))
    with dx.config.set(block_bytes=0):
        x = (dx.asarray(a, team=team) + 0).persist()
        y = x + 1
        with dx.config.set(memory_limit=a.nbytes // (2 if team is None else 8)), counting() as counted:
            with pytest.raises(dx.MemoryBudgetError, match=r"add of .*: a member would hold \d+ bytes .* memory-limit"):
                y.persist()
            assert "above the limit" in str(dx.explain(y))
        assert counted.tasks == 0
        np.testing.assert_array_equal(np.asarray(y), a + 1)  # nothing is lost
        np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.cluster
def test_what_is_too_large_is_not_even_sent(cluster4: object) -> None:
    a = rng.normal(size=(400, 400))
    x = dx.asarray(a)
    with dx.config.set(block_bytes=0):
        y = x + 1
        before = dx.explain(y).host_bytes
        with dx.config.set(memory_limit=a.nbytes // 16), pytest.raises(dx.MemoryBudgetError, match=r"add of .*: a "):
            y.persist()
        assert dx.explain(y).host_bytes == before >= a.nbytes  # all of it is still to be sent
        np.testing.assert_array_equal(np.asarray(y), a + 1)


@pytest.mark.cluster
@pytest.mark.parametrize("target", [(16, 64), (128, 128)])
def test_small_blocks_that_travel_whole_in_packs_count(cluster4: object, target: tuple[int, int]) -> None:
    a = np.arange(65536.0).reshape(256, 256)
    with dx.config.set(block_bytes=0):
        x = dx.arange(65536.0).reshape(256, 256).rechunk((4, 4)).persist()
        with dx.config.set(memory_limit=500_000):  # members hold more in all, so what they hold is counted
            y = x.rechunk(target)
            assert a.nbytes // 4 < dx.explain(y).peak_bytes <= 500_000
            np.testing.assert_array_equal(np.asarray(y), a)


@pytest.mark.cluster
def test_the_plan_of_a_search_is_tried_where_the_propagated_one_does_not_fit(
    cluster4: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "MAX_STREAMS", 0)
    a, b = rng.normal(size=(64, 8000)), rng.normal(size=(8000, 64))
    with dx.config.set(block_bytes=0, calibration={}):
        x, y = [(dx.asarray(c, sharding=("x", None)) + 0).persist() for c in (a, b)]
        assert explained(x @ y).planner == "propagation"  # it is fast enough for the first time
        others = []
        for limit in np.linspace(a.nbytes, explained(x @ y).peak_bytes, 20, dtype=int).tolist():
            with dx.config.set(memory_limit=limit):
                with dx.config.set(planner="propagation"):
                    fits = "above the limit" not in str(explained(x @ y))
                plan = explained(x @ y)
                if plan.planner == "eindecomp" and "above the limit" not in str(plan):
                    others.append(fits)
                    np.testing.assert_allclose(np.asarray(x @ y), a @ b, rtol=1e-10)
        assert others and not any(others)
