"""What is explained under a limit is what runs or is refused, and a refusal leaves everything as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.planner.graph import canonical
from distarray.runtime import executors, planning, prepare, running
from distarray.testing import counting, peaks

TEAM = dx.Team((2,), ("x",))


def is_refused(y: Any) -> bool:
    """Whether an array is refused, by what is asked of it; no task of it has run then."""
    with counting() as counted:
        try:
            y.persist()
        except dx.MemoryBudgetError:
            assert counted.tasks == 0
            return True
    return False


@pytest.mark.parametrize("share", np.linspace(0.1, 1.1, 11).round(2).tolist())
def test_what_is_explained_to_need_more_than_the_limit_is_refused_and_all_else_runs(share: float) -> None:
    """Where what nobody asked for has no room it is not kept: it was explained as if it were."""
    with dx.config.set(eager_bytes=0, block_bytes=0):
        x = dx.asarray(np.random.default_rng(0).random((64, 100)), team=TEAM, sharding=("x", None)).persist()
        parts = [(x * k)[::2] for k in range(2, 8)]
        y = sum(part.sum(axis=0) for part in parts) + dx.cumulative_sum(x[0])
        limit = int(y.explain().peak_bytes * share)
        with dx.config.set(memory_limit=limit), peaks() as found:
            told = y.explain().peak_bytes
            assert is_refused(y) == (told > limit)
        assert max([p.blocks for p in found.values()], default=0) <= max(limit, x.nbytes // 2)
    assert len(parts) == 6


def test_what_a_transform_has_beside_its_blocks_counts_where_the_blocks_are_little() -> None:
    """It was not counted where the limit was several times what all blocks are."""
    with dx.config.set(eager_bytes=0, block_bytes=0):
        y = dx.fft.fft(dx.asarray(np.random.default_rng(0).random((2, 7919)), team=TEAM).persist())
        needed = y.explain().peak_bytes
        assert needed > 4 * (y.nbytes + y.nbytes // 2)
        with dx.config.set(memory_limit=needed - 1):
            assert is_refused(y)
        with dx.config.set(memory_limit=needed):
            assert not is_refused(y)


def test_a_refused_evaluation_does_not_count_as_one_that_made_something() -> None:
    """After it more was kept, for the sake of what waits, than would have been without."""
    with dx.config.set(eager_bytes=0, block_bytes=0):
        x = dx.asarray(np.random.default_rng(0).random((64, 100)), team=TEAM, sharding=("x", None)).persist()
        shared = x * 2.0
        y, z = shared.sum(), shared.max()
        del shared
        before = len(y.explain().results)
        with dx.config.set(memory_limit=1000):
            assert is_refused(y) and is_refused(z)
        assert len(y.explain().results) == before == 1


def test_a_plan_that_fits_is_not_replaced_by_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third run of an expression has a plan that is searched for longer, and may need more memory."""
    with dx.config.set(eager_bytes=0, block_bytes=0, plan_cache_size=8):
        x = dx.asarray(np.random.default_rng(0).random((64, 100)), team=TEAM, sharding=("x", None)).persist()
        node = (x * 3.0)._node()
        env, order = node.env, [*node.nodes(), node]
        graph = canonical(order, {id(node)}, planning.context_of(env))
        fits = replace(planning.found_plan(graph, env), is_provisional=True)
        made = [fits, replace(fits, above=(1 << 40, 0))]
        monkeypatch.setattr(planning, "fit_to_memory", lambda *args, **options: made.pop(0))
        planning.PLANS.clear()
        planning.uses_of(graph)[0] = planning.USES_BEFORE_SEARCH
        found = planning.found_plan(graph, env)
        assert made == [] and (found.above, found.is_provisional) == (None, False)


def test_results_in_the_blocks_of_others_fit_where_those_do() -> None:
    """They were explained so, and refused as if each had blocks of its own."""
    with dx.config.set(eager_bytes=0, block_bytes=0):
        x = dx.asarray(np.random.default_rng(0).random((64, 100)), team=TEAM, sharding=("x", None)).persist() + 0.0
        x.persist()
        x[::-2] *= 2.0
        told = x.explain().peak_bytes
        assert told < 2 * x.nbytes // 2
        with dx.config.set(memory_limit=told):
            assert not is_refused(x)


def test_steps_keep_to_their_order_where_others_might_exceed_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads took whatever step could run, and members held more than was predicted, and than the limit."""
    monkeypatch.setattr(running, "process_threads", lambda env: 4)
    monkeypatch.setattr(running, "INLINE_NBYTES", 0)
    with dx.config.set(eager_bytes=0, block_bytes=0):
        x = dx.asarray(np.random.default_rng(0).random((64, 100)), team=TEAM, sharding=("x", None)).persist()
        y = (x.T @ x).sum(axis=0) + x[::-1].sum(axis=0)
        needed = y.explain().peak_bytes
        ran: list[int] = []
        before = executors._Run._run
        monkeypatch.setattr(executors._Run, "_run", lambda self, n, args: ran.append(n) or before(self, n, args))
        with dx.config.set(memory_limit=needed), peaks() as found:
            y.persist()
        assert ran == [] and max(p.blocks for p in found.values()) <= needed
        (x[::-1] * 3).persist()
        assert ran  # memory is no matter there


@pytest.mark.parametrize("peak", [0, 1 << 40])
def test_blocks_are_not_taken_over_where_that_needs_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, peak: int
) -> None:
    """A block that is taken over stays until its last reader, which may be more than a copy of it at another time."""
    seen: list[Any] = []
    instance_of = running.instance_of

    def spied(plan: Any, graph: Any, env: Any, run: str, inplace: Any) -> Any:
        seen.append(inplace)
        return instance_of(plan, graph, env, run, inplace)

    monkeypatch.setattr(running, "instance_of", spied)
    monkeypatch.setattr(prepare, "_peak", lambda *args: peak)
    with dx.config.set(eager_bytes=0, block_bytes=0, memory_limit="1 MiB"):
        x = dx.asarray(np.arange(640.0).reshape(64, 10), team=TEAM, sharding=("x", None)).persist() + 0.0
        x.persist()
        x[::-2] *= 2.0
        x.persist()
    assert bool(seen[-1]) == (peak == 0)


@pytest.mark.cluster
def test_host_data_that_come_count_once(cluster4: Any) -> None:
    """A worker has them under two names for a moment, which is one memory."""
    host = np.random.default_rng(0).random((400, 1000))
    y = dx.asarray(host, sharding=(dx.current_team().mesh.names, None)).sum(axis=1)
    told = y.explain().peak_bytes
    with counting() as counted, peaks() as found:
        y.persist()
        np.testing.assert_allclose(np.asarray(y), host.sum(axis=1))
    each = host.nbytes // 4
    assert max(p.blocks - p.before for p in found.values()) <= told + 4000 <= 2 * each + 40_000
    assert counted.predicted_peak <= told
