"""Redistributions cost what they move and make, step by step, as they are lowered."""

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.planner.rates import Rates
from distarray.runtime.planning import limits_of, plan_of

#: Nothing costs anything but tasks, elements or messages.
TASKS = Rates(latency=0, task=1, bandwidth=0, compute=0, gemm=0, generic=0)
ELEMENTS = Rates(latency=0, task=0, bandwidth=0, compute=1, gemm=0, generic=0)
LATENCY = Rates(latency=1, task=0, bandwidth=1e30, compute=0, gemm=0, generic=0)


def placed(y: dx.DistArray, rates: Rates = TASKS) -> ResolvedStages:
    plan, graph, env = plan_of([y.__dx_node__()])
    return PartitionProblem(graph, env.mesh, limits_of(env), rates, plan.stages).place(plan.stages)


def lying(team: dx.Team, sharding: tuple[str, str] = ("x", "y")) -> dx.DistArray:
    values = np.arange(144.0).reshape(12, 12)
    return (dx.asarray(values, team=team, sharding=sharding) + 0).persist()


def test_steps_in_one_process_move_nothing_and_make_tiles() -> None:
    x = lying(dx.Team((4, 6), ("x", "y")))
    direct, paper = x.reshard(("y", "x"), mode="direct"), x.reshard(("y", "x"), mode="paper")
    steps = paper.explain().stages[0].collectives
    assert len(steps) == 3
    for rates, each in [(TASKS, 24), (ELEMENTS, 6)]:
        assert placed(direct, rates).seconds == each
        assert placed(paper, rates).seconds == each * len(steps)
    assert placed(direct, LATENCY).seconds == placed(paper, LATENCY).seconds == 0
    assert placed(direct).nbytes == placed(paper).nbytes == paper.explain().moved_bytes == 0


def test_an_operand_that_is_read_in_another_cut_moves_in_one_process_too() -> None:
    """Pieces of it are copied, unlike tiles of a redistribution."""
    team = dx.Team((2, 2), ("x", "y"))
    x, y = lying(team), lying(team, ("y", "x"))
    assert placed(x + y).nbytes == (x + y).explain().moved_bytes > 0


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["direct", "paper", "fused", "auto"])
def test_on_a_cluster_bytes_are_those_of_the_steps(cluster4: Any, mode: str) -> None:
    x = lying(dx.Team((2, 2), ("x", "y"), client=cluster4))
    for target in (("y", "x"), (("x", "y"), None), (None, None)):
        y = x.reshard(target, mode=mode)
        found = y.explain()
        (stage,) = found.stages
        assert placed(y, Rates()).nbytes == found.moved_bytes == sum(step.moved for step in stage.collectives) > 0
        assert placed(y, Rates()).seconds == found.seconds
        if mode != "auto":  # chooses by the rates
            n = len(stage.collectives)
            assert n <= placed(y, LATENCY).seconds <= 3 * n  # a message of each of the others
            assert target != (None, None) or mode != "direct" or placed(y, LATENCY).seconds == 3


@pytest.mark.cluster
def test_what_all_members_have_costs_nothing_to_read(cluster4: Any) -> None:
    team = dx.Team((2, 2), ("x", "y"), client=cluster4)
    x, w = lying(team, (("x", "y"), None)), dx.asarray(np.ones((12, 12)), team=team, sharding=(None, None))
    dx.wait((w + 0).persist())  # host data come at their first use
    one = (w + 0).reshard((None, None)).persist()
    assert placed(x @ w, Rates()).nbytes == (x @ w).explain().moved_bytes == 0
    assert placed(x @ one, Rates()).nbytes == (x @ one).explain().moved_bytes > 0
