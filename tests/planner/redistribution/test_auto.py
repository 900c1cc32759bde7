"""The mode auto: the plan that takes least by latency and bandwidth, and searches whose prices are seconds."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from distarray.planner.rates import Rates
from distarray.planner.redistribution import plan
from distarray.planner.redistribution.problem import Problem
from distarray.planner.redistribution.senders import plan_seconds
from distarray.planner.redistribution.staged import StepCosts
from distarray.planner.redistribution.weak import Space, cheapest
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistribution_verifier import verify
from distarray.testing.redistributions import Case, family, small_cases

SLOW_MESSAGES = Rates(latency=4e-3)


def seconds(case: Case, mode: str, rates: Rates) -> float:
    found = plan(*case, mode=mode, rates=rates, itemsize=4)  # type: ignore[arg-type]  # one of the modes
    return plan_seconds(found.steps, found.trace, 4, rates)


@pytest.mark.parametrize("rates", [Rates(), SLOW_MESSAGES, Rates(latency=0.0, task=0.0)])
def test_auto_takes_no_longer_than_any_mode(rates: Rates) -> None:
    for case in [*family("A", 12, seed=7), *family("D", 12, seed=7), *small_cases(12, seed=7, uneven=True)]:
        best = min(seconds(case, mode, rates) for mode in ("paper", "fused", "direct"))
        assert seconds(case, "auto", rates) <= best * (1 + 1e-9)


def test_without_latency_nothing_is_quicker_than_one_exchange() -> None:
    free = Rates(latency=0.0, task=0.0)
    for case in family("A", 20, seed=8):
        found = plan(*case, rates=free)
        assert (found.received >= found.lower_bound).all()
        direct = plan(*case, mode="direct")
        assert seconds(case, "auto", free) == pytest.approx(plan_seconds(direct.steps, direct.trace, 4, free), rel=1e-9)


def test_an_exchange_of_all_with_all_goes_in_stages_where_messages_are_dear() -> None:
    """Four times the bytes, 10 messages instead of 63: staged, which is a plan of the paper's form."""
    mesh = Mesh(("x",), (64,))
    case = Case((64, 64), Sharding(mesh, (("x",), ())), Sharding(mesh, ((), ("x",))))
    found = plan(*case, rates=SLOW_MESSAGES)
    assert [s.op for s in found.steps] == ["alltoall", "alltoall", "alltoall", "allpermute"]
    assert found.mode == "paper"
    assert [int(count.max()) for count in found.messages] == [3, 3, 3, 1]
    assert verify(*case, found.to_json()["steps"], mode="paper", cost=found.cost, peak=found.peak) == []
    assert seconds(case, "auto", SLOW_MESSAGES) < 0.5 * seconds(case, "direct", SLOW_MESSAGES)
    large = Case((1 << 14, 1 << 14), case.src, case.dst)
    assert plan(*large).mode == "direct", "bytes are what costs"


def test_a_gather_of_many_goes_in_stages_where_messages_are_dear() -> None:
    mesh = Mesh(("x",), (64,))
    case = Case((1 << 20,), Sharding(mesh, (("x",),)), Sharding(mesh, ((),)))
    found = plan(*case, rates=Rates(latency=0.1, task=0.0))
    assert [(s.op, s.n) for s in found.steps] == [("allgather", 2)] * 6  # type: ignore[union-attr]
    assert found.received.tolist() == found.lower_bound.tolist(), "in as many bytes"
    assert verify(*case, found.to_json()["steps"], mode="paper", cost=found.cost) == []


@pytest.mark.parametrize("name", ["A", "D", "E"])
def test_prices_are_the_seconds_of_the_plan(name: str) -> None:
    """What the search thinks a path costs is what the model says of its steps, where sizes divide."""
    rates = Rates(latency=2e-3)
    for case in family(name, 15, seed=9):
        problem = Problem.of(*case)
        space = Space(problem)
        prices = StepCosts(space, 4, rates)
        path = cheapest(space, prices)
        assert path is not None
        found = plan(*case, rates=rates, itemsize=4)
        took = plan_seconds(found.steps, found.trace, 4, rates)
        slices = len(path.slices) * rates.task * problem.n_devices
        assert took <= path.cost + prices.permute(path.valley) + slices + 1e-12
        tile, parts, total = space.tile(space.src), list(space.src), 0.0
        for i, n in path.slices:
            parts[i] *= n
        for i, j, n in path.moves:
            tile = space.tile(tuple(parts))
            total += prices.move(tile, n)
            parts[i], parts[j] = parts[i] // n, parts[j] * n
        gathers, cost = prices.gathers(tuple(parts))
        assert (gathers, pytest.approx(total + cost)) == (path.gathers, path.cost)


def test_guesses_of_the_search_are_never_too_high() -> None:
    """Least prices are below the real ones: so A* finds the quickest path."""
    for case in family("C", 20, seed=10):
        problem = Problem.of(*case)
        space = Space(problem)
        prices = StepCosts(space, 4, Rates(latency=1e-3))
        for parts in space.starts():
            tile = space.tile(parts)
            for n in (2, 4, 8, 32):
                assert prices.least_move(tile) <= prices.move(tile, n)
            if not space.missing(parts):
                steps, cost = prices.gathers(parts)
                assert prices.least_gathers(tile) <= cost
                assert math.prod(n for _, n in steps) * space.n_dst == math.prod(parts)
                factors = [n for _, n in steps]
                assert all(a <= b for a, b in pairwise(factors))


def test_a_bandwidth_that_is_unknown_costs_nothing() -> None:
    mesh = Mesh(("x",), (4,))
    case = Case((8, 8), Sharding(mesh, (("x",), ())), Sharding(mesh, ((), ("x",))))
    found = plan(*case, mode="direct")
    rates = Rates(bandwidth=0.0)
    assert plan_seconds(found.steps, found.trace, 8, rates) == pytest.approx(3 * rates.latency + 4 * rates.task)
