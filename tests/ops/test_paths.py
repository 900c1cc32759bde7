"""Contraction orders: what their steps are, and which one is taken."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import hooks
from distarray.ops import paths
from distarray.ops.paths import (
    Factors,
    PathStep,
    chosen_order,
    largest_intermediate,
    n_operations,
    parse_path,
    steps_of,
)

FEW = settings(max_examples=60, derandomize=True, deadline=None)
CHAIN = ((0, 1), (1, 2), (2, 3))


def test_a_step_keeps_the_labels_that_are_needed_later():
    assert steps_of(((0, 2), (0, 1)), CHAIN, (3, 0)) == (
        PathStep((0, 2), ((0, 1), (2, 3)), (0, 1, 2, 3)),
        PathStep((1, 3), ((1, 2), (0, 1, 2, 3)), (3, 0)),
    )
    assert steps_of(((1, 2), (0, 1)), CHAIN, (0, 3))[0] == PathStep((1, 2), ((1, 2), (2, 3)), (1, 3))


def test_operations_are_joins_and_aggregations():
    extents = (2, 3, 5, 7)
    steps = steps_of(((0, 1), (0, 1)), CHAIN, (0, 3))
    assert n_operations(steps, extents) == 2 * 2 * 3 * 5 + 2 * 2 * 5 * 7
    assert n_operations((PathStep((0, 1, 2), CHAIN, (0, 3)),), extents) == 3 * 2 * 3 * 5 * 7
    assert largest_intermediate(steps, extents) == 2 * 5


@st.composite
def products(draw):
    n = draw(st.integers(3, 5))
    labels = draw(st.lists(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=3), min_size=n, max_size=n))
    found = sorted({k for own in labels for k in own})
    number = {k: i for i, k in enumerate(found)}
    terms = tuple(tuple(number[k] for k in own) for own in labels)
    goal = tuple(draw(st.permutations(range(len(found)))))[: draw(st.integers(0, 2))]
    return terms, goal, tuple(draw(st.sampled_from([2, 3, 10, 50])) for _ in found)


@FEW
@given(products(), st.sampled_from([None, 1, 100, 10_000]))
def test_the_order_taken_is_about_the_cheapest_that_fits(product, limit):
    terms, goal, extents = product
    state = random.getstate()
    order = chosen_order(Factors(terms, goal, extents), "auto", limit)
    assert random.getstate() == state
    every = [steps_of(o, terms, goal) for o in paths._all_orders(len(terms))]
    fitting = [s for s in every if limit is None or largest_intermediate(s, extents) <= limit]
    if len(terms) <= paths.ALL_ORDERS and limit is not None:
        assert (order is None) == (not fitting)
    if order is not None:
        steps = steps_of(order, terms, goal)
        assert limit is None or largest_intermediate(steps, extents) <= limit
        if len(terms) <= paths.ALL_ORDERS and limit is not None:
            assert n_operations(steps, extents) == min(n_operations(s, extents) for s in fitting)


def test_there_are_so_many_orders():
    assert [len(paths._all_orders(n)) for n in (2, 3, 4)] == [1, 3, 18]


def test_the_planner_chooses_among_orders_of_about_as_many_operations(monkeypatch):
    asked = []

    def cost(factors, steps, objective):
        asked.append((objective, steps[0].factors))
        return 0.0 if steps[0].factors == (1, 2) else 1.0

    monkeypatch.setattr(hooks, "planned_cost", cost)
    even = Factors(CHAIN, (0, 3), (9, 9, 9, 9), (None, None, None), 4)
    assert chosen_order(even, "auto") == ((1, 2), (0, 1))
    assert {objective for objective, _ in asked} == {"paper"}
    asked.clear()
    skew = Factors(CHAIN, (0, 3), (1, 90, 90, 90), (None, None, None), 4)
    assert chosen_order(skew, "auto") == ((0, 1), (0, 1))  # the other takes ninety times as many operations
    assert not asked
    assert chosen_order(even._replace(parts=None), "auto") in (((0, 1), (0, 1)), ((1, 2), (0, 1)))
    assert chosen_order(even, "greedy") in (((0, 1), (0, 1)), ((1, 2), (0, 1)))
    assert chosen_order(even, False) == ((0, 1, 2),)
    assert not asked


def test_all_at_once_is_taken_where_it_is_faster(monkeypatch):
    def cost(factors, steps, objective):
        return float(len(steps)) if objective == "time" else 0.0

    monkeypatch.setattr(hooks, "planned_cost", cost)
    # three arrays of the same labels: two by two saves no operations
    same = Factors(((0, 1),) * 3, (0,), (11, 11), ((2, 1),) * 3, 2)
    assert chosen_order(same, "auto") is None
    chain = Factors(CHAIN, (0, 3), (11,) * 4, ((2, 1),) * 3, 2)
    assert chosen_order(chain, "auto") is not None


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (None, False),
        (True, True),
        ("auto", "auto"),
        ("dp", "dp"),
        (("greedy", 100.0), ("greedy", 100)),
        ([(0, 1), (0, 1)], ((0, 1), (0, 1))),
        (["einsum_path", [1, 2], [0, 1]], ((1, 2), (0, 1))),
    ],
)
def test_ways_to_say_an_order(given_, expected):
    assert parse_path(given_, 3) == expected


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ("bogus", KeyError),
        (3.5, TypeError),
        ([1, 2], TypeError),
        (["einsum_path"], TypeError),
        ([(0, 1)], RuntimeError),
        ([(0, 3), (0, 1)], IndexError),
        ([(0, 0), (0, 1)], IndexError),
    ],
)
def test_what_is_no_order(given_, error):
    with pytest.raises(error):
        parse_path(given_, 3)
