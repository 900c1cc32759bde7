"""EinGraph: what the partition planner sees of an expression: labelled loops over extents (EinDecomp, section 3).

An operation is ``Z[l_Z] = AGG over l_agg of JOIN(X1[l_1], X2[l_2], ..)``. Labels of the inputs that the result lacks
are aggregated; labels of the result that no input has are broadcast. Which scalar functions join and aggregate does
not matter for the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from distarray.errors import ShardingError

__all__ = ["EinGraph", "EinOp", "Input", "parse_expr", "parse_graph"]

Label = str
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """An array that exists: of any layout that is wanted, or in `layout` parts per dimension."""

    shape: Shape
    layout: tuple[int, ...] | None = None


@dataclass(frozen=True)
class EinOp:
    """One operation.

    Parameters
    ----------
    terms
        Labels of each input.
    result
        Labels of the result.
    inputs
        Names of the inputs.
    extents
        Of each label.
    join, agg
        Names of the scalar functions.
    """

    terms: tuple[tuple[Label, ...], ...]
    result: tuple[Label, ...]
    inputs: tuple[str, ...]
    extents: Mapping[Label, int]
    join: str = "mul"
    agg: str = "sum"

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """All distinct labels: those of the result first."""
        return tuple(dict.fromkeys([*self.result, *[x for term in self.terms for x in term]]))

    @cached_property
    def aggregated(self) -> tuple[Label, ...]:
        """Labels of the inputs that the result lacks."""
        return tuple([x for x in self.labels if x not in self.result])

    @property
    def shape(self) -> Shape:
        """Of the result."""
        return tuple([self.extents[x] for x in self.result])

    @property
    def is_contraction(self) -> bool:
        """Whether it joins several inputs and aggregates."""
        return len(self.terms) > 1 and bool(self.aggregated)


@dataclass(frozen=True)
class EinGraph:
    """Operations in topological order.

    Parameters
    ----------
    inputs, ops
        By name; the names of an operation's inputs are among them.
    equal
        Groups of names whose arrays must be cut alike.
    """

    inputs: Mapping[str, Input]
    ops: Mapping[str, EinOp]
    name: str = ""
    equal: tuple[tuple[str, ...], ...] = ()
    #: What a graph file says: kernels per operation, and kind of splits.
    p: int | None = None
    parts: str | None = field(default=None)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Operations whose results nothing consumes."""
        used = {u for op in self.ops.values() for u in op.inputs}
        return tuple([v for v in self.ops if v not in used])

    @cached_property
    def edges(self) -> tuple[tuple[str, str, int], ...]:
        """(producer, consumer, number of the operand) between operations."""
        return tuple([(u, v, i) for v, op in self.ops.items() for i, u in enumerate(op.inputs) if u in self.ops])

    def shape(self, name: str) -> Shape:
        """Of an input or a result."""
        return self.inputs[name].shape if name in self.inputs else self.ops[name].shape

    @property
    def is_tree(self) -> bool:
        """Whether every result is consumed at most once."""
        sources = [u for u, _, _ in self.edges]
        return len(sources) == len(set(sources))

    @property
    def n_elements(self) -> int:
        """Of all arrays."""
        return sum(prod(self.shape(n)) for n in (*self.inputs, *self.ops))


def parse_expr(text: str) -> tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...]]:
    """The labels of ``"ij,jk->ik"``.

    Raises
    ------
    ShardingError
        If it has no ``->``, or a label is no letter or stands twice in one term.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    if not arrow:
        raise ShardingError(f"expr {text!r} has no '->'")
    terms = tuple([tuple(t) for t in left.split(",")])
    for term in (*terms, tuple(right)):
        if not all(x.isalpha() for x in term):
            raise ShardingError(f"expr {text!r}: labels are single letters")
        if len(set(term)) != len(term):
            raise ShardingError(f"expr {text!r}: a label stands twice in {''.join(term)!r}; take the diagonal first")
    return terms, tuple(right)


def parse_graph(data: Any) -> EinGraph:
    """A graph from the JSON of a graph file.

    Raises
    ------
    ShardingError
        If it is not of the form, or its extents do not agree.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list):
        raise ShardingError("a graph is an object with a list of nodes")
    inputs: dict[str, Input] = {}
    ops: dict[str, EinOp] = {}
    for node in data["nodes"]:
        name = _named(node, {**inputs, **ops})
        if "expr" in node:
            ops[name] = _op(name, node, inputs, ops)
        else:
            inputs[name] = _input(name, node)
    p = data.get("p")
    if p is not None and (not isinstance(p, int) or p < 1):
        raise ShardingError(f"p = {p!r}: kernels per operation are a positive integer")
    equal = tuple([tuple(group) for group in data.get("equal", ())])
    graph = EinGraph(inputs, ops, str(data.get("name", "")), equal, p, data.get("parts"))
    for group in equal:
        shapes = set()
        for name in group:
            if name not in inputs and name not in ops:
                raise ShardingError(f"equal: there is no node {name!r}")
            shapes.add(len(graph.shape(name)))
        if len(shapes) > 1:
            raise ShardingError(f"equal: {', '.join(group)} have different ranks")
    return graph


def _named(node: Any, known: Mapping[str, Any]) -> str:
    if not isinstance(node, Mapping) or "id" not in node:
        raise ShardingError(f"{node!r} is no node: it has no id")
    name = str(node["id"])
    if name in known:
        raise ShardingError(f"node {name!r} is there twice")
    return name


def _input(name: str, node: Mapping[str, Any]) -> Input:
    shape = node.get("shape")
    if not isinstance(shape, Sequence) or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ShardingError(f"input {name!r}: shape {shape!r} is no list of positive integers")
    layout = node.get("layout")
    if layout is None:
        return Input(tuple(shape))
    if len(layout) != len(shape) or not all(isinstance(k, int) and k > 0 for k in layout):
        raise ShardingError(f"input {name!r}: layout {layout!r} does not fit the shape {list(shape)}")
    for n, k in zip(shape, layout):
        if n % k:
            raise ShardingError(f"input {name!r}: {k} parts do not divide the extent {n}")
    return Input(tuple(shape), tuple(layout))


def _op(name: str, node: Mapping[str, Any], inputs: Mapping[str, Input], ops: Mapping[str, EinOp]) -> EinOp:
    terms, result = parse_expr(str(node["expr"]))
    given = [str(u) for u in node.get("inputs", ())]
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
    for x in result:
        if x not in extents:
            if x not in sizes:
                raise ShardingError(f"op {name!r}: label {x!r} is only in the result; give its extent in sizes")
            extents[x] = int(sizes[x])
    return EinOp(terms, result, tuple(given), extents, str(node.get("join", "mul")), str(node.get("agg", "sum")))
