"""Plans of einsums for users: how an einsum, or a graph of them, is cut, and what a given cut costs.

Nothing is computed and no array is needed. Plans are remembered by structure, shapes and options.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from distarray import config
from distarray.array.environment import environment
from distarray.errors import ShardingError
from distarray.planner import eindecomp
from distarray.planner.cache import EINPLANS
from distarray.planner.eindecomp import EinGraph, EinPlan, parse_expr, parse_graph
from distarray.planner.rates import current_rates
from distarray.runtime.known_rates import places_of, rates_for

#: A graph, or the JSON of a graph file.
Graph: TypeAlias = EinGraph | Mapping[str, Any]
#: Parts per dimension of inputs that lie already: by name, or in the order of the operands.
Layouts: TypeAlias = Mapping[str, Sequence[int]] | Sequence[Sequence[int] | None]


def plan(
    expr_or_graph: str | Graph,
    shapes: Sequence[Sequence[int]] | None = None,
    *,
    p: int | None = None,
    objective: Literal["time", "paper"] | None = None,
    splits: Literal["pow2", "any"] | None = None,
    repart: Literal["paper", "worst", "jax", "cpp"] = "paper",
    search: Literal["exact", "linearised", "tree"] = "exact",
    kernels: Literal["equal", "upto"] | None = None,
    memory_limit: int | str | None = None,
    layouts: Layouts | None = None,
    equal: Sequence[Sequence[str]] = (),
) -> EinPlan:
    """Cut every operation of an expression so that it costs least.

    Parameters
    ----------
    expr_or_graph
        Einsum text such as ``"ij,jk->ik"``, of any number of operands: one operation ``Z`` on float64 arrays ``X1``,
        ``X2`` ... Or a graph of such operations: the JSON of a graph file, as plain data.
    shapes
        Of the operands, for text.
    p
        Workers, and kernels per operation: the graph's own if not given, else the members of the current team. Without
        a cluster those that are said are taken to be on as many nodes.
    objective
        ``"time"``: predicted seconds; ``"paper"``: elements, as the EinDecomp paper counts them. By default the option
        of that name.
    splits
        ``"pow2"``: powers of two; ``"any"``: every number of parts. By default what the graph says, else by objective.
    repart
        Reading of the paper's words on repartitioning.
    search
        ``"exact"``, or one of the paper's: ``"tree"`` (for trees only) and ``"linearised"`` (a heuristic).
    kernels
        ``"equal"``: every operation has `p`; ``"upto"``: those that are no contractions may have fewer. By default by
        objective.
    memory_limit
        Bytes per worker that no moment of the plan may exceed, in the objective ``"time"``; without it there is no
        limit.
    layouts
        Parts per dimension of inputs that lie already; the others are cut as the plan likes.
    equal
        Groups of names whose arrays must be cut alike, such as a weight and its update.

    Returns
    -------
    EinPlan
        With ``cost``, ``splits``, ``explain()`` and ``to_json()``.

    Raises
    ------
    ShardingError
        If expression or options cannot be.
    MemoryBudgetError
        If nothing fits `memory_limit`.

    Examples
    --------
    >>> import distarray as dx
    >>> found = dx.plan("ij,jk->ik", [(8, 8), (8, 8)], p=8, objective="paper")
    >>> found.cost, found.splits["Z"]
    (320, {'i': 2, 'k': 2, 'j': 2})
    """
    graph = _graph(expr_or_graph, shapes)
    if layouts:
        graph = graph.with_layouts(_by_name(graph, layouts))
    if equal:
        graph = graph.with_ties(tuple([tuple(group) for group in equal]))
    options: dict[str, Any] = {
        "objective": objective or config.get("objective"),
        "splits": splits,
        "repart": repart,
        "search": search,
        "kernels": kernels,
        "memory_limit": None if memory_limit is None else config.parse_option("memory-limit", memory_limit),
        **_workers(p if p is not None else graph.p),
    }
    key = (_frozen(graph), tuple(options.values()))
    return EINPLANS.get(key, lambda: eindecomp.plan(graph, **options), config.get("plan-cache-size"))


def plan_cost(
    graph: Graph,
    splits: Mapping[str, Mapping[str, int]],
    objective: Literal["time", "paper"] = "paper",
    repart: Literal["paper", "worst", "jax", "cpp"] = "paper",
    *,
    p: int | None = None,
) -> int | float:
    """Return what a graph costs that is cut as `splits` says, with any number of kernels: elements, or seconds.

    Parameters
    ----------
    graph
        As `plan` takes it.
    splits
        Parts of each label by operation; labels that are left out have one part.
    objective, repart
        As `plan` takes them.
    p
        Workers, for the objective ``"time"``: the graph's own if not given, else as many as an operation has kernels.

    Raises
    ------
    ShardingError
        If an operation has no splits, or they do not fit.

    Examples
    --------
    A product of which each of 4 workers makes some rows:

    >>> import distarray as dx
    >>> nodes = [{"id": "A", "shape": [8, 8]}, {"id": "B", "shape": [8, 8]}]
    >>> nodes.append({"id": "C", "expr": "ij,jk->ik", "inputs": ["A", "B"]})
    >>> dx.plan_cost({"nodes": nodes}, {"C": {"i": 4}})
    320
    """
    found = _graph(graph, None)
    size = p if p is not None else found.p
    where = {"p": None, "rates": current_rates()} if size is None else _workers(size)
    return eindecomp.plan_cost(found, splits, objective, repart, **where)


def _graph(given: str | Graph, shapes: Sequence[Sequence[int]] | None) -> EinGraph:
    if isinstance(given, str):
        if shapes is None:
            raise ShardingError(f"plan of {given!r}: shapes of the operands are needed")
        terms, _ = parse_expr(given)
        if len(shapes) != len(terms):
            raise ShardingError(f"plan of {given!r}: {len(terms)} operands and {len(shapes)} shapes")
        nodes: list[dict[str, Any]] = [{"id": f"X{i}", "shape": list(s)} for i, s in enumerate(shapes, 1)]
        result = {"id": "Z", "expr": given, "inputs": [node["id"] for node in nodes]}
        return parse_graph({"dtype": "float64", "nodes": [*nodes, result]})
    if shapes is not None:
        raise ShardingError("shapes go with an einsum text; a graph has its own")
    if isinstance(given, EinGraph):
        return given
    try:
        text = json.dumps(given)
    except TypeError:  # sizes that are numpy's
        return parse_graph(given)
    return _parsed(text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> EinGraph:
    """Return the graph of a file: reading one takes longer than finding its plan."""
    return parse_graph(json.loads(text))


def _by_name(graph: EinGraph, layouts: Layouts) -> dict[str, tuple[int, ...]]:
    if not isinstance(layouts, Mapping):
        if len(layouts) != len(graph.inputs):
            raise ShardingError(f"{len(layouts)} layouts are given for {len(graph.inputs)} inputs")
        layouts = {name: layout for name, layout in zip(graph.inputs, layouts) if layout is not None}
    return {name: tuple(layout) for name, layout in layouts.items()}


def _workers(p: int | None) -> dict[str, Any]:
    """Return how many workers are planned for, where they are, and what moving and computing costs them."""
    env = environment()
    if env.is_cluster:
        places = places_of(env) if p in (None, env.size) else None
        return {"p": env.size if p is None else p, "places": places, "rates": rates_for(env)}
    if p is not None:
        return {"p": p, "places": None, "rates": current_rates()}
    return {"p": env.size, "places": ((0, 0),) * env.size, "rates": rates_for(env)}


#: What is hashed by what it holds already.
_ATOMS = frozenset({str, int, float, bool, tuple, frozenset, type(None)})


#: What gives the values of all fields of a dataclass, by the class.
_getters: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _values_of(value: Any) -> tuple[Any, ...]:
    get = _getters.get(type(value))
    if get is None:
        get = _getters[type(value)] = attrgetter(*[field.name for field in fields(value)])
    return get(value)


def _frozen(value: Any) -> Hashable:
    """Return a graph, operation or input, or a mapping of them, as what is hashed by what it holds."""
    named = isinstance(value, Mapping)
    items = value.values() if named else _values_of(value)
    frozen = tuple([item if type(item) in _ATOMS else _frozen(item) for item in items])
    return (tuple(value), frozen) if named else frozen
