"""Plans for one member: made where all is small and exchanges cost more than members gain, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.planner.alone import MOST_BLOCKS, alone, is_small
from distarray.planner.plan import Limits, Pinned, Plan, Written
from distarray.planner.rates import Rates
from distarray.runtime.planning import plan_of

TEAM = dx.Team((4,), ("x",))
ROWS = ("x", None)
LIMITS = Limits(1 << 20, 1 << 27)
SLOW = Rates(exchange=1e-2)


def lying(rows: int = 600) -> Any:
    return (dx.asarray(np.random.default_rng(0).random((rows, 8)), team=TEAM, sharding=ROWS) * 1.0).persist()


def centred(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x - x.mean(0)
        x = x / dx.abs(x).max()
    return x


def planned(y: Any, limits: Limits = LIMITS, rates: Rates = SLOW) -> tuple[Plan, Plan]:
    plan, graph, env = plan_of((y.__dx_node__(),))
    return plan, alone(plan, graph, env.mesh, limits, rates)


def is_alone(y: Any, limits: Limits = LIMITS, rates: Rates = SLOW) -> bool:
    before, found = planned(y, limits, rates)
    assert (found is before) == (found.planner != "one member")
    return found is not before


@pytest.fixture(autouse=True)
def _cut() -> Any:
    with dx.config.set(block_bytes=0):
        yield


def test_a_loop_of_exchanges_runs_at_one_member() -> None:
    _, found = planned(centred(lying(), 3))
    assert found.planner == "one member"
    assert "all members" in found.alternatives[-1]
    assert not any(stage.cut.waves for stage in found.stages)


@pytest.mark.parametrize(
    "rates",
    [
        replace(SLOW, exchange=0.0, latency=0.0),
        replace(SLOW, step=1.0),  # one member would have all the steps
        replace(SLOW, compute=1e3),  # .. and all the work
        replace(SLOW, bandwidth=1e3),  # what the member has not would take long to come
    ],
)
def test_exchanges_have_to_cost_more_than_members_gain(rates: Rates) -> None:
    y = centred(lying(), 3)
    assert is_alone(y)
    assert not is_alone(y, rates=rates)


def test_what_nobody_waits_for_stays_where_it_is() -> None:
    assert not is_alone(lying() * 2 + 1)


def test_large_arrays_stay_cut() -> None:
    y = centred(lying(), 3)
    nbytes = 600 * 8 * 8
    assert is_alone(y, Limits(nbytes // MOST_BLOCKS, 1 << 27))
    assert not is_alone(y, Limits(nbytes // MOST_BLOCKS - 1, 1 << 27))
    assert not is_alone(y, Limits(0, 1 << 27))
    # a step has the array and one that it makes of it
    assert is_alone(y, Limits(1 << 20, 4 * nbytes))
    assert not is_alone(y, Limits(1 << 20, nbytes))


def test_cuts_that_were_asked_for_stay() -> None:
    y = centred(lying(), 3).reshard(ROWS)
    assert any(isinstance(stage.cut.rule, Pinned) for stage in planned(y)[0].stages)
    assert not is_alone(y)


def test_a_version_lies_as_the_one_before_it() -> None:
    x = lying()
    for _ in range(3):
        x[1:] -= x[:-1].mean(0)
    assert any(isinstance(stage.cut.rule, Written) for stage in planned(x)[0].stages)
    assert not is_alone(x)
    y = lying() + 1  # the first version is made here
    for _ in range(3):
        y[1:] -= y[:-1].mean(0)
    assert is_alone(y)


def test_a_plan_is_for_small_arrays_whatever_extents_it_was_made_for() -> None:
    """Arrays with boundaries of their own have one plan for all extents."""
    plan, _ = planned(centred(lying(), 3))
    for rows, is_for in ((600, True), (6_000_000, False)):
        stored = dx.zeros((rows, 8), team=TEAM, sharding=ROWS)
        _, graph, _ = plan_of((centred(stored, 3).__dx_node__(),))
        assert is_small(plan, graph, LIMITS) == is_for
