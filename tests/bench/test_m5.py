"""M5 at its smallest size: every expression and move is planned, and planned once."""

from __future__ import annotations

import pytest
from benchmarks import m5_plan

from distarray.testing.redistribution_verifier import verify


@pytest.mark.parametrize("objective", m5_plan.OBJECTIVES)
@pytest.mark.parametrize("p", m5_plan.WORKERS["XS"])
@pytest.mark.parametrize("name", m5_plan.EXPRESSIONS["XS"])
def test_expressions_are_planned_once(name: str, p: int, objective: str) -> None:
    bench = m5_plan.Plan()
    bench.setup(name, p, objective, "XS")
    assert bench.track_plan_seconds(name, p, objective, "XS") > 0
    assert bench.track_planner_calls_of_a_cached_plan(name, p, objective, "XS") == 0


@pytest.mark.parametrize("mode", ["paper", "fused", "direct", "auto"])
@pytest.mark.parametrize("p", m5_plan.WORKERS["S"])
@pytest.mark.parametrize("name", m5_plan.MOVES)
def test_moves_are_planned(name: str, p: int, mode: str) -> None:
    bench = m5_plan.Reshard()
    bench.setup(name, p, mode)
    found = bench.plan(mode, 512)
    assert bench.plan(mode, 512).solution is found.solution
    shape, src, dst = bench.types
    made = found.to_json()
    assert verify(shape, src, dst, made["steps"], mode=made["mode"], cost=made["cost"], peak=made["peak"]) == []


def test_goals_are_measured() -> None:
    (goal,) = m5_plan.goals("XS")
    assert goal.measure().median > 0
    assert len(m5_plan.goals("S")) == 10
