"""Graph files: the JSON form of an EinGraph, checked where it enters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.arguments import MAX_COUNT, shown
from distarray.errors import ShardingError
from distarray.planner.eindecomp.checks import is_integer
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Input, Label, parse_expr

#: The dtype of the arrays of a file that says none.
DTYPE = "float32"


def parse_graph(data: Any) -> EinGraph:
    """Return a graph from the JSON of a graph file.

    A file may have a ``dtype``, for all arrays or by node (default float32), and
    inputs with a ``layout`` may have the ``workers`` of their blocks in C order.

    Raises
    ------
    ShardingError
        If it is not of the form, or its extents do not agree.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list) or not data["nodes"]:
        raise ShardingError(f"{shown(data)} is no graph: a graph is an object with a list of nodes")
    inputs: dict[str, Input] = {}
    ops: dict[str, EinOp] = {}
    dtype = data.get("dtype", DTYPE)
    for node in data["nodes"]:
        name = _named(node, {**inputs, **ops})
        itemsize = _itemsize(name, node.get("dtype", dtype))
        if "expr" in node:
            ops[name] = _op(name, node, itemsize, inputs, ops)
        else:
            inputs[name] = _input(name, node, itemsize)
    p = data.get("p")
    if p is not None and not is_integer(p, 1):
        raise ShardingError(f"p = {p!r}: kernels per operation are a positive integer")
    graph = EinGraph(inputs, ops, (), None if p is None else int(p), data.get("parts"))
    return graph.with_ties(tuple([_listed("equal", group) for group in _listed("equal", data.get("equal", ()))]))


def _listed(what: str, value: Any) -> tuple[Any, ...]:
    """Return the items of a list."""
    if not isinstance(value, (list, tuple)):
        raise ShardingError(f"{what}: {value!r} is no list")
    return tuple(value)


def _integers(values: Sequence[Any], least: int) -> tuple[int, ...] | None:
    """Return the integers, numpy's ones as Python's; None if one is another thing, or less than `least`."""
    return tuple([int(n) for n in values]) if all(is_integer(n, least) for n in values) else None


def _named(node: Any, known: Mapping[str, Any]) -> str:
    if not isinstance(node, Mapping) or "id" not in node:
        raise ShardingError(f"{node!r} is no node: it has no id")
    name = str(node["id"])
    if name in known:
        raise ShardingError(f"node {name!r} is there twice")
    return name


def _itemsize(name: str, dtype: Any) -> int:
    try:
        return int(np.dtype(dtype).itemsize)
    except TypeError:
        raise ShardingError(f"node {name!r}: dtype {dtype!r} is unknown") from None


def _input(name: str, node: Mapping[str, Any], itemsize: int) -> Input:
    given = node.get("shape")
    shape = _integers(given, 1) if isinstance(given, Sequence) else None
    if shape is None:
        raise ShardingError(f"input {name!r}: shape {shown(given)} is no list of positive integers")
    if prod(shape) * itemsize > MAX_COUNT:
        raise ShardingError(f"input {name!r} of shape {list(shape)} is too large: more than {MAX_COUNT} bytes")
    layout, workers = node.get("layout"), node.get("workers")
    if layout is None:
        if workers is not None:
            raise ShardingError(f"input {name!r} has workers and no layout")
        return Input(shape, itemsize=itemsize)
    parts = _integers(_listed(f"input {name!r}: layout", layout), 1)
    if parts is None or len(parts) != len(shape):
        raise ShardingError(f"input {name!r}: layout {layout!r} does not fit the shape {list(shape)}")
    for n, k in zip(shape, parts):
        if n % k:
            raise ShardingError(f"input {name!r}: {k} parts do not divide the extent {n}")
    if workers is None:
        return Input(shape, parts, itemsize=itemsize)
    places = _integers(_listed(f"input {name!r}: workers", workers), 0)
    if places is None or len(places) != prod(parts):
        raise ShardingError(
            f"input {name!r}: workers {workers!r} are no list of {prod(parts)} numbers, one for each block"
        )
    return Input(shape, parts, places, itemsize)


def _op(
    name: str, node: Mapping[str, Any], itemsize: int, inputs: Mapping[str, Input], ops: Mapping[str, EinOp]
) -> EinOp:
    terms, result = parse_expr(str(node["expr"]))
    given = [str(u) for u in _listed(f"op {name!r}: inputs", node.get("inputs", ()))]
    if len(given) != len(terms):
        raise ShardingError(f"op {name!r}: {len(terms)} terms and {len(given)} inputs")
    extents: dict[Label, int] = {}
    for u, term in zip(given, terms):
        if u not in inputs and u not in ops:
            raise ShardingError(f"op {name!r}: there is no input {u!r} before it")
        shape = inputs[u].shape if u in inputs else ops[u].shape
        if len(shape) != len(term):
            raise ShardingError(
                f"op {name!r}: {u!r} has {len(shape)} dimensions, the term {''.join(term)!r} {len(term)}"
            )
        for x, n in zip(term, shape):
            if extents.setdefault(x, n) != n:
                raise ShardingError(f"op {name!r}: label {x!r} has the extents {extents[x]} and {n}")
    sizes = node.get("sizes", {})
    if not isinstance(sizes, Mapping):
        raise ShardingError(f"op {name!r}: sizes {sizes!r} are no object of labels and extents")
    for x, n in sizes.items():
        if not is_integer(n, 1):
            raise ShardingError(f"op {name!r}: the size {n!r} of label {x!r} is no positive integer")
        if extents.get(x, n) != n:
            raise ShardingError(f"op {name!r}: label {x!r} has the extents {extents[x]} and {n}")
    for x in result:
        if x not in extents:
            if x not in sizes:
                raise ShardingError(f"op {name!r}: label {x!r} is only in the result; give its extent in sizes")
            extents[x] = int(sizes[x])
    if prod(extents.values()) * itemsize > MAX_COUNT:
        raise ShardingError(f"op {name!r}: labels of the extents {extents} are too large: more than can be counted")
    join, agg = str(node.get("join", "mul")), str(node.get("agg", "sum"))
    return EinOp(terms, result, tuple(given), extents, join, agg, itemsize=itemsize)
