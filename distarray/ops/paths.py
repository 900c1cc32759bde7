"""Contraction orders: in which order the factors of a product of many are multiplied, two by two.

opt_einsum finds the orders of fewest operations. Of several that take about as many, the one is taken whose best plan
moves least, where the array layer says what a plan costs (`hooks.planned_cost`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Any, NamedTuple, TypeAlias

from distarray import hooks
from distarray.arguments import integers, shown
from distarray.expr.params import Labels

#: Positions in the list of what is left, step by step; results go to its end.
Order: TypeAlias = tuple[tuple[int, ...], ...]
#: Parts along each axis of an array that lies in tiles; None: it may lie anyhow.
Parts: TypeAlias = tuple[int, ...] | None


class PathStep(NamedTuple):
    """A PathStep is one product of an order: the factors by number (operands first, then results), and the labels of
    all.
    """

    factors: tuple[int, ...]
    terms: tuple[Labels, ...]
    result: Labels


class Factors(NamedTuple):
    """Factors are what there is to multiply.

    Parameters
    ----------
    terms, goal, extents
        Labels of the operands and of the result, and the extent of each label.
    parts
        In how many each operand lies along its axes; None: what moves does not matter.
    n_members, itemsize
        Members that multiply, and bytes of an element.
    is_product
        Whether it is a sum of products.
    """

    terms: tuple[Labels, ...]
    goal: Labels
    extents: tuple[int, ...]
    parts: tuple[Parts, ...] | None = None
    n_members: int = 1
    itemsize: int = 8
    is_product: bool = True


#: Orders of up to so many factors are all looked at: there are 15 of four, and 105 of five.
ALL_ORDERS = 4
#: Orders within this factor of the fewest operations are compared by what they move.
SLACK = 1.1
#: The best of them is compared with one kernel on all operands, if that is within this factor.
AT_ONCE = 2.0


def steps_of(order: Order, terms: Sequence[Labels], goal: Labels) -> tuple[PathStep, ...]:
    """Return the products of an order, each with the labels that are still needed after it."""
    pool = list(enumerate(terms))
    steps = []
    for n, positions in enumerate(order):
        taken = [pool[i] for i in sorted(positions)]
        pool = [factor for i, factor in enumerate(pool) if i not in positions]
        needed = {*goal, *(label for _, own in pool for label in own)}
        result = tuple(dict.fromkeys(label for _, own in taken for label in own if label in needed)) if pool else goal
        steps.append(PathStep(tuple(i for i, _ in taken), tuple(own for _, own in taken), result))
        pool.append((len(terms) + n, result))
    return tuple(steps)


def n_operations(steps: Sequence[PathStep], extents: Sequence[int]) -> int:
    """Return the joins of elements, and aggregations of what they make."""
    total = 0
    for step in steps:
        labels = {label for own in step.terms for label in own}
        per_point = max(1, len(step.terms) - 1) + (len(labels) > len(step.result))
        total += per_point * prod(extents[label] for label in labels)
    return total


def largest_intermediate(steps: Sequence[PathStep], extents: Sequence[int]) -> int:
    """Return the elements of the largest result that is not the last one."""
    return max([prod(extents[label] for label in step.result) for step in steps[:-1]], default=0)


# -------------------------------------------------------------------------------------------------------- parsing


def parse_path(optimize: Any, n: int) -> Order | Any:
    """Return an explicit order for `n` operands, checked; any other way to say ``optimize=`` as it is.

    Raises
    ------
    TypeError
        If it is no way to say it.
    KeyError
        If opt_einsum knows no strategy of that name.
    RuntimeError, IndexError
        If an explicit order leaves operands, or names some that are not there.
    """
    if optimize is None:
        return False
    if isinstance(optimize, bool) or callable(optimize):
        return optimize
    if isinstance(optimize, str):
        if optimize != "auto":
            from opt_einsum.paths import get_path_fn

            get_path_fn(optimize)  # which knows the names
        return optimize
    given = list(optimize) if isinstance(optimize, Sequence) else []
    if len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], int | float):
        return parse_path(given[0], n), int(given[1])
    steps = given[1:] if given[:1] == ["einsum_path"] else given
    if not steps or not all(isinstance(step, Sequence) and not isinstance(step, str) for step in steps):
        raise TypeError(f"Did not understand the path: optimize={shown(optimize)}")
    return _checked([integers(step, "optimize") for step in steps], n)


def _checked(order: Sequence[tuple[int, ...]], n: int) -> Order:
    for step in order:
        if not step or len(set(step)) < len(step) or not all(0 <= i < n for i in step):
            raise IndexError(f"optimize: the step {step} does not name operands of the {n} that are left")
        n += 1 - len(step)
    if n != 1:
        raise RuntimeError(f"Invalid einsum_path is specified: {n - 1} more operands has to be contracted.")
    return tuple(order)


# ------------------------------------------------------------------------------------------------------- choosing


def chosen_order(factors: Factors, optimize: Any, limit: int | None = None) -> Order | None:
    """Return the order in which factors are multiplied; None: all at once.

    Parameters
    ----------
    optimize
        As `parse_path` gives it. An explicit order is taken as it is.
    limit
        Elements of the largest intermediate result. If no order keeps to it, there is to be none.
    """
    n = len(factors.terms)
    if isinstance(optimize, tuple) and not isinstance(optimize[0], str | bool):
        return optimize
    if n <= 2 or optimize is False:
        return (tuple(range(n)),)
    bound = None
    if isinstance(optimize, tuple):
        optimize, bound = optimize
        if bound < 1:
            return None  # no intermediate result keeps to it, and numpy makes none
    strategy = "auto" if optimize is True else optimize
    by_cost = factors.parts is not None and strategy == "auto" and bound is None and hooks.planned_cost is not None
    if not by_cost and limit is None:
        return _by_strategy(*factors[:3], strategy, bound)
    found = _candidates(*factors[:3], strategy if isinstance(strategy, str) else "auto", limit)
    if not found:
        return None
    return _cheapest(factors, found) if by_cost else found[0]


def _cheapest(factors: Factors, orders: tuple[Order, ...]) -> Order | None:
    """Return the order that moves least; None: all at once, if that takes less time than this order."""
    assert hooks.planned_cost is not None
    steps = [steps_of(order, *factors[:2]) for order in orders]
    # Of as many operations, so the count of elements will do, which takes a millisecond and not thirty.
    moved = [hooks.planned_cost(factors, s, "paper") for s in steps] if len(steps) > 1 else [0.0]
    best = moved.index(min(moved))
    at_once = (PathStep(tuple(range(len(factors.terms))), factors.terms, factors.goal),)
    if n_operations(at_once, factors.extents) <= AT_ONCE * n_operations(steps[best], factors.extents):
        seconds = [hooks.planned_cost(factors, s, "time") for s in (steps[best], at_once)]
        if seconds[1] < seconds[0]:
            return None
    return orders[best]


def _by_strategy(
    terms: Sequence[Labels], goal: Labels, extents: Sequence[int], strategy: Any, bound: int | None = None
) -> Order:
    """Return the order of one of opt_einsum's strategies."""
    import opt_einsum

    def letters(own: Labels) -> str:
        return "".join(map(opt_einsum.get_symbol, own))

    text = ",".join(map(letters, terms)) + "->" + letters(goal)
    # Extents as arrays have them: an axis of 1 that broadcasts costs nothing.
    shapes = [tuple([extents[label] for label in own]) for own in terms]
    path, _ = opt_einsum.contract_path(text, *shapes, shapes=True, optimize=strategy, memory_limit=bound)
    return tuple([tuple(step) for step in path])


@lru_cache(maxsize=256)
def _candidates(
    terms: tuple[Labels, ...], goal: Labels, extents: tuple[int, ...], strategy: str, limit: int | None
) -> tuple[Order, ...]:
    """Return orders of two factors at a time that take about the fewest operations, the fewest first.

    With a limit those that keep to it, and of these those of the fewest operations.
    """
    found = list(_orders(terms, goal, extents, strategy))
    if len(terms) <= ALL_ORDERS:
        found += _all_orders(len(terms))
    costs: dict[Order, int] = {}
    seen: set[Any] = set()
    for order in found:
        steps = steps_of(order, terms, goal)
        products = frozenset([(frozenset(step.terms), frozenset(step.result)) for step in steps])
        if products not in seen and (limit is None or largest_intermediate(steps, extents) <= limit):
            seen.add(products)
            costs[order] = n_operations(steps, extents)
    least = min(costs.values(), default=0)
    return tuple([order for order in sorted(costs, key=costs.__getitem__) if costs[order] <= SLACK * least])


def _orders(terms: Sequence[Labels], goal: Labels, extents: Sequence[int], strategy: str) -> Iterator[Order]:
    """Yield the orders that opt_einsum's strategies find."""
    import random

    yield _by_strategy(terms, goal, extents, strategy)
    if strategy == "auto":
        state = random.getstate()  # random-greedy seeds the generator that the user may draw from
        try:
            for other in ("greedy", "random-greedy"):
                yield _by_strategy(terms, goal, extents, other)
        finally:
            random.setstate(state)


@lru_cache(maxsize=8)
def _all_orders(n: int) -> tuple[Order, ...]:
    """Return all orders of `n` factors two at a time."""
    if n < 2:
        return ((),)
    return tuple([(pair, *rest) for pair in combinations(range(n), 2) for rest in _all_orders(n - 1)])
