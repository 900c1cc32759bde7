"""``dx.plan`` and ``dx.plan_cost``: the partition planner for users."""

from __future__ import annotations

import copy
from math import prod
from typing import Any
from unittest import mock

import numpy as np
import pytest

import distarray as dx
from distarray.errors import ShardingError
from distarray.planner import eindecomp
from distarray.planner.cache import EINPLANS
from distarray.planner.rates import Rates
from distarray.testing import eingraphs, labellings


@pytest.fixture(autouse=True)
def nothing_planned() -> None:
    dx.plan_cache_clear()


def test_text_is_one_operation_on_its_operands() -> None:
    found = dx.plan("ij,jk->ik", [(8, 8), (8, 8)], p=8, objective="paper")
    assert (found.cost, found.splits) == (320, {"Z": {"i": 2, "j": 2, "k": 2}})
    many = dx.plan("ijk,jr,kr->ir", [(8, 8, 8), (8, 4), (8, 4)], p=4, objective="paper")
    assert list(many.graph.inputs) == ["X1", "X2", "X3"]
    assert prod(many.splits["Z"].values()) == 4


def test_text_and_graph_are_planned_alike() -> None:
    graph = eingraphs.matmul(64, 32, 16)
    text = dx.plan("ij,jk->ik", [(64, 32), (32, 16)], p=8, objective="paper")
    assert dx.plan(graph, objective="paper").splits["C"] == text.splits["Z"]


def test_integers_may_be_numpys_and_not_bools() -> None:
    n = np.int64(8)
    nodes = [{"id": "A", "shape": [n, n]}, {"id": "B", "expr": "ij->ijz", "inputs": ["A"], "sizes": {"z": n}}]
    assert dx.plan({"p": np.int32(4), "nodes": nodes}, objective="paper").graph.ops["B"].shape == (8, 8, 8)
    with pytest.raises(ShardingError, match="shape"):
        dx.plan("ij,jk->ik", [(True, 8), (8, 8)], p=4, objective="paper")


@pytest.mark.parametrize("objective", ["paper", "time"])
@pytest.mark.parametrize("search", ["exact", "linearised", "tree"])
def test_the_cost_is_that_of_the_splits(objective: Any, search: Any) -> None:
    graph = eingraphs.matrix_chain(256)
    found = dx.plan(graph, p=8, objective=objective, search=search)
    assert found.cost == pytest.approx(dx.plan_cost(graph, found.splits, objective), rel=1e-12)
    assert found.search == search


def test_the_objective_is_the_option_unless_it_is_given() -> None:
    graph = eingraphs.matrix_chain(256)
    assert dx.plan(graph).objective == "time"
    with dx.config.set(objective="paper"):
        assert dx.plan(graph).objective == "paper"
        assert dx.plan(graph, objective="time").objective == "time"


def test_layouts_by_name_and_by_position() -> None:
    shapes = [(8, 8), (8, 8)]
    free = dx.plan("ij,jk->ik", shapes, p=8, objective="paper")
    by_name = dx.plan("ij,jk->ik", shapes, p=8, objective="paper", layouts={"X1": (8, 1)})
    by_place = dx.plan("ij,jk->ik", shapes, p=8, objective="paper", layouts=[(8, 1), None])
    assert by_name.cost == by_place.cost > free.cost
    with pytest.raises(dx.ShardingError, match="2 inputs"):
        dx.plan("ij,jk->ik", shapes, p=8, layouts=[(8, 1)])
    with pytest.raises(dx.ShardingError, match="no input 'X3'"):
        dx.plan("ij,jk->ik", shapes, p=8, layouts={"X3": (8, 1)})


def test_equal_arrays_are_cut_alike() -> None:
    graph = eingraphs.ffnn(b=64, f=256, h=128, o=64)
    del graph["equal"]
    for objective in ("paper", "time"):
        found = dx.plan(graph, objective=objective, equal=[["W1", "W1n"], ["W2", "W2n"]])  # type: ignore[arg-type]
        for weight in ("W1", "W2"):
            assert found.layouts[weight] == found.layouts[f"{weight}n"]


def test_a_memory_limit_holds_or_is_refused() -> None:
    graph = eingraphs.matmul(256, 256, 256)
    peak = dx.plan(graph).count.peak_bytes
    assert dx.plan(graph, memory_limit=peak // 2).count.peak_bytes <= peak // 2
    with pytest.raises(dx.MemoryBudgetError, match="C"):
        dx.plan(graph, memory_limit="1 kiB")
    with pytest.raises(ValueError, match="memory-limit"):
        dx.plan(graph, memory_limit="much")


def test_without_a_number_the_team_is_planned_for() -> None:
    shapes = [(64, 64), (64, 64)]
    with dx.use(team=dx.Team((4,), ("R",), members=(0, 1, 2, 3))):
        assert dx.plan("ij,jk->ik", shapes, objective="paper").options.p == 4
        assert dx.plan("ij,jk->ik", shapes, objective="paper", p=2).options.p == 2
        # between threads of one process moving costs nothing
        assert dx.plan("ij,jk->ik", shapes).machine.places == ((0, 0),) * 4
        assert dx.plan("ij,jk->ik", shapes, p=4).machine.places is None
    with dx.use(team=None):
        assert dx.plan("ij,jk->ik", shapes, objective="paper").options.p == 1


@pytest.mark.cluster
def test_on_a_cluster_its_workers_are_planned_for(process_cluster: Any) -> None:
    found = dx.plan("ij,jk->ik", [(64, 64), (64, 64)])
    assert found.machine.p == 3
    places = found.machine.places
    assert places is not None
    assert len({node for node, _ in places}) == 1
    assert len(set(places)) == 3
    assert dx.plan("ij,jk->ik", [(64, 64), (64, 64)], p=8).machine.places is None


# --------------------------------------------------------------------------------------------------------------- cache


def test_a_plan_of_a_kind_is_made_once() -> None:
    graph = eingraphs.llama(b=2, s=64, h=4, d=16, m=64)
    first = dx.plan(graph, objective="paper")
    with mock.patch.object(eindecomp, "plan", side_effect=AssertionError):
        assert dx.plan(copy.deepcopy(graph), objective="paper") is first
        assert dx.plan(first.graph, objective="paper") is first
    assert EINPLANS.info()[:2] == (2, 1)
    dx.plan_cache_clear()
    assert dx.plan(graph, objective="paper") is not first


@pytest.mark.parametrize(
    "change",
    [
        {"p": 4},
        {"objective": "time"},
        {"splits": "any"},
        {"repart": "cpp"},
        {"search": "linearised"},
        {"kernels": "upto"},
        {"memory_limit": 1 << 30},
        {"layouts": {"A": (2, 4)}},
        {"equal": [["A", "B"]]},
    ],
)
def test_what_a_plan_depends_on_makes_another(change: dict[str, Any]) -> None:
    graph = eingraphs.matmul(64, 64, 64)
    options: dict[str, Any] = {"objective": "paper"}
    first = dx.plan(graph, **options)
    assert dx.plan(graph, **options) is first
    assert dx.plan(graph, **{**options, **change}) is not first
    assert dx.plan(eingraphs.matmul(64, 64, 128), **options) is not first


def test_other_rates_make_another_plan() -> None:
    graph = eingraphs.matmul(64, 64, 64)
    first = dx.plan(graph)
    with dx.config.set(calibration={"latency": 1.0}):
        slow = dx.plan(graph)
        assert slow.machine.rates.latency == 1.0
        assert dx.plan_cost(graph, first.splits, "time") > first.cost
    assert slow is not first
    assert dx.plan(graph) is first
    assert first.machine.rates == Rates()


# ----------------------------------------------------------------------------------------------------------- plan_cost


def test_any_labelling_with_any_number_of_kernels_has_a_cost() -> None:
    graph = eingraphs.matrix_chain(64)
    best = dx.plan(graph, p=16, objective="paper").cost
    usual = labellings.sqrt_parts(graph, 16)
    assert dx.plan_cost(graph, usual) > best
    assert dx.plan_cost(graph, usual, repart="cpp") >= dx.plan_cost(graph, usual)
    assert dx.plan_cost(graph, usual, "time", p=16) >= dx.plan(graph, p=16).cost
    del graph["p"]
    assert dx.plan_cost(graph, usual, "time") > 0  # as many workers as kernels


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("args", "options", "says"),
    [
        (("ij,jk->ik",), {}, "shapes of the operands"),
        (("ij,jk->ik", [(8, 8)]), {}, "2 operands and 1 shapes"),
        (("ij,jk->ik", [(8, 8), (4, 8)]), {}, "extents"),
        (("ij,jk->ik", [(8, 8), (8,)]), {}, "1 dimensions"),
        (("ij,jk", [(8, 8), (8, 8)]), {}, "'->'"),
        (("ii->i", [(8, 8)]), {}, "twice"),
        ((eingraphs.matmul(8, 8, 8), [(8, 8)]), {}, "a graph has its own"),
        ((eingraphs.matmul(8, 8, 8),), {"p": 0}, "at least one"),
        ((eingraphs.matmul(8, 8, 8),), {"p": 6, "splits": "pow2"}, "no power of two"),
        ((eingraphs.matmul(8, 8, 8),), {"objective": "speed"}, "objective 'speed' is unknown"),
        ((eingraphs.matmul(8, 8, 8),), {"search": "quick"}, "search 'quick' is unknown"),
        ((eingraphs.matmul(8, 8, 8),), {"kernels": "more"}, "kernels 'more' is unknown"),
        ((eingraphs.matmul(8, 8, 8),), {"splits": "some"}, "splits 'some' is unknown"),
        ((eingraphs.matmul(8, 8, 8),), {"equal": [["A", "D"]]}, "no node 'D'"),
        ((eingraphs.attention(64, 8, 8, 64),), {"search": "tree"}, "is no tree"),
    ],
)
def test_what_cannot_be_planned_is_refused(args: Any, options: Any, says: str) -> None:
    with pytest.raises(dx.ShardingError, match=says):
        dx.plan(*args, **{"p": 8, **options})
