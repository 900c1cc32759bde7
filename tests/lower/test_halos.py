"""Chains of halo stages as tasks: numpy's values to the bit, one task and one exchange for many steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.planner import halos
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan
from distarray.planner.rates import Rates
from distarray.runtime import planning
from distarray.testing import counting

TEAMS = [
    (dx.Team((4,), ("x",)), ("x", None)),
    (dx.Team((2, 2), ("r", "c")), ("r", "c")),
    (dx.Team((3,), ("x",)), (None, "x")),
    (dx.Team((5,), ("x",)), ("x", None)),
]


@pytest.fixture(autouse=True)
def _dear_exchanges() -> Iterator[None]:
    """Chains wherever they are possible, in one process too, where the planner makes none."""

    def chained(plan: Plan, graph: Graph, env: Any, limits: Any) -> Plan:
        return plan if env.size == 1 else halos.chained(plan, graph, env.mesh, limits, Rates(exchange=10.0))

    with pytest.MonkeyPatch.context() as patch, dx.config.set(block_bytes=0):
        patch.setattr(planning, "_chained", chained)
        dx.plan_cache_clear()
        yield
    dx.plan_cache_clear()


def jacobi(x: Any, n: int) -> None:
    for _ in range(n):
        x[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def water(h: Any, u: Any, v: Any, n: int) -> None:
    for _ in range(n):
        u[:, :-1] -= 0.1 * (h[:, 1:] - h[:, :-1])
        v[:-1] -= 0.1 * (h[1:] - h[:-1])
        h[1:-1, 1:-1] -= 0.1 * ((u[1:-1, 1:-1] - u[1:-1, :-2]) + (v[1:-1, 1:-1] - v[:-2, 1:-1]))


def placed(team: dx.Team, sharding: Any, *shape: int, seed: int = 0) -> tuple[np.ndarray, dx.DistArray]:
    values = np.random.default_rng(seed).random(shape)
    return values, (dx.asarray(values, team=team, sharding=sharding) * 1.0).persist()


@pytest.mark.parametrize(("team", "sharding"), TEAMS, ids=str)
def test_steps_in_place_are_numpys_to_the_bit(team: dx.Team, sharding: Any) -> None:
    a, x = placed(team, sharding, 65, 70)
    jacobi(a, 7)
    jacobi(x, 7)
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize(("team", "sharding"), TEAMS, ids=str)
def test_arrays_that_are_written_in_turns(team: dx.Team, sharding: Any) -> None:
    pairs = [placed(team, sharding, 60, 61, seed=k) for k in range(3)]
    water(*[a for a, _ in pairs], 4)
    water(*[x for _, x in pairs], 4)
    for a, x in pairs:
        np.testing.assert_array_equal(np.asarray(x), a)


def test_a_chain_is_one_exchange_and_one_task_for_each_member() -> None:
    team, sharding = TEAMS[0]
    a, x = placed(team, sharding, 64, 20)
    jacobi(a, 4)
    jacobi(x, 4)
    text = str(x.explain())
    with counting() as c:
        np.testing.assert_array_equal(np.asarray(x), a)
    assert len(c.transfers) == 6  # to and from each neighbour, once for all four steps
    assert "stages 0 to 3 exchange once" in text
    assert c.by_class["tile"] == 4
    assert c.bytes_moved == 6 * (3 * 20 + 18) * 8  # as many rows as there are steps; of the last no corners


@pytest.mark.parametrize("n", [2, 3, 7])
def test_of_a_task_that_makes_more_than_is_needed_one_result_is_kept(n: int) -> None:
    a = np.arange(n, 0, -1)
    with dx.use(team=TEAMS[2][0]), dx.config.set(eager_bytes=0):
        x = dx.asarray(a) + 0
        member = dx.isin(x, x)
        x[::-1] = x * member
        np.testing.assert_array_equal(np.asarray(dx.nonzero(x)[0]), np.arange(n))
        np.testing.assert_array_equal(np.asarray(x), a[::-1])


def test_results_that_shrink_and_are_kept_on_the_way() -> None:
    team, sharding = TEAMS[0]
    a, x = placed(team, sharding, 100, 6)
    kept: list[tuple[Any, Any]] = []
    for _ in range(6):
        a, x = [(z[:-2] + z[1:-1] * 2 + z[2:]) * 0.25 for z in (a, x)]
        kept.append((a, x))
    for expected, found in reversed(kept):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_arrays_that_lie_on_other_members_are_in_no_chain() -> None:
    """Only who has a tile of one has a tile of all: else a member would have to make what it has no place for."""
    team = TEAMS[2][0]
    a, x = placed(team, None, 5)
    b, y = placed(team, ("x", None), 7, 12, seed=1)
    for z, w in ((a, b), (x, y)):
        w[1:] = w[:-1] + 1
        z[1:4] = z[2:5] * 2
        w[2:5] = w[1:4] + z[0]
    kept = [(z[4:-1:-2] + 1, w[1:] - w[:-1], z * 2) for z, w in ((a, b), (x, y))]
    for expected, found in zip((a, b, *kept[0]), dx.compute(x, y, *kept[1]), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_writes_far_from_what_they_read_are_not_in_one_chain() -> None:
    """Periodic borders need the other end of the array: members would compute all of it."""
    team, sharding = TEAMS[0]
    a, x = placed(team, sharding, 40, 6)
    for z in (a, x):
        for _ in range(4):
            z[1:-1] = 0.5 * (z[:-2] + z[2:])
            z[0], z[-1] = z[-2], z[1]
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.cluster
def test_loops_on_a_cluster_exchange_once_for_many_steps(cluster4: object) -> None:
    team, sharding = dx.Team((4,), ("x",)), ("x", None)
    pairs = [placed(team, sharding, 120, 50, seed=k) for k in range(3)]
    water(*[a for a, _ in pairs], 5)
    water(*[x for _, x in pairs], 5)
    plan = dx.explain(*[x for _, x in pairs])
    with counting() as c:
        dx.wait(*dx.persist(*[x for _, x in pairs]))
    assert len(c.transfers) == 6  # to and from each neighbour
    assert c.bytes_moved == plan.moved_bytes
    assert c.by_class["tile"] == 4
    for a, x in pairs:
        np.testing.assert_array_equal(np.asarray(x), a)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, int, slice, int, int, int]]:
    """Statements that write a slice of one of two arrays from shifted slices of both, as `run` takes them."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        start, stop = draw(st.integers(0, 12)), draw(st.integers(16, 30))
        at = slice(start, stop, draw(st.sampled_from([1, 1, 1, 2])))
        shifts = [min(max(draw(st.integers(-3, 3)), -start), 30 - stop) for _ in range(2)]
        found.append((draw(st.integers(0, 4)), draw(st.integers(0, 1)), at, draw(st.integers(0, 1)), *shifts))
    return found


def run(arrays: list[Any], program: list[tuple[int, int, slice, int, int, int]]) -> list[Any]:
    kept = []
    for k, (kind, w, at, of, s, t) in enumerate(program):
        one, other = [slice(at.start + d, at.stop + d, at.step) for d in (s, t)]
        if kind == 0:
            arrays[w][at] = k + 0.5
        elif kind == 1:
            arrays[w][at] *= np.linspace(0, 1, len(range(at.start, at.stop, at.step)))[:, None]
        elif kind == 2:
            arrays[w] = arrays[of] + arrays[1 - of][::1]
        else:
            arrays[w][at] = arrays[of][one] * 0.5 + arrays[1 - of][other]
        if k % 3 == 2:
            kept.append(arrays[w] + 1)
    return [*arrays, *kept]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs(), st.sampled_from(TEAMS), st.integers(1, 3), st.booleans())
def test_programs_of_shifted_writes_are_numpys(program: Any, where: Any, n_columns: int, is_whole: bool) -> None:
    team, sharding = where
    pairs = [placed(team, sharding if k or not is_whole else None, 30, n_columns, seed=k) for k in range(2)]
    expected = run([a for a, _ in pairs], program)
    found = run([x for _, x in pairs], program)
    for a, x in zip(expected, dx.compute(*found), strict=True):
        np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize(("team", "sharding"), TEAMS[:2])
def test_a_redistribution_is_in_no_chain(team: dx.Team, sharding: Any) -> None:
    a, x = placed(team, sharding, 17, 12)
    y = x.reshard((None, team.axes[0]))
    for z in (a, y):
        z[1:9] = -1.0
        z += 2
        z[:, ::2] = z[:, 1::2]
    np.testing.assert_array_equal(np.asarray(y), a)
