"""EinGraph: what EinDecomp sees of an expression: labelled loops over extents (EinDecomp, section 3).

An operation is ``Z[l_Z] = AGG over l_agg of JOIN(X1[l_1], X2[l_2], ..)``. Labels of the inputs that the result lacks
are aggregated; labels of the result that no input has are broadcast. Which scalar functions join and aggregate matters
for predicted seconds only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from distarray.errors import ShardingError
from distarray.planner.eindecomp.axis_cuts import AxisCut, is_regular, n_parts
from distarray.planner.rates import KernelKind

#: Name of a loop: a letter in graph files, any string in graphs made by programs.
Label = str
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """An Input is an array that exists, or will before the graph runs.

    Parameters
    ----------
    shape
        Elements per dimension.
    layout
        How it is cut: for each dimension the number of parts, or all boundaries where they are not the regular ones.
        None: as the plan likes.
    workers
        The worker of each block, in C order; None: as the plan likes.
    itemsize
        Bytes of an element.
    everywhere
        Whether each worker has what it reads of it before the graph runs, as those of a model have its weights: such
        parts are held to the end, and nothing moves. It has no layout.
    """

    shape: Shape
    layout: tuple[AxisCut, ...] | None = None
    workers: tuple[int, ...] | None = None
    itemsize: int = 8
    everywhere: bool = False

    def __post_init__(self) -> None:
        # regular boundaries are a number of parts: equal cuts compare equal
        if self.layout is not None and len(self.layout) == len(self.shape):
            cuts = [n_parts(cut) if is_regular(n, cut) else cut for n, cut in zip(self.shape, self.layout)]
            object.__setattr__(self, "layout", tuple(cuts))

    @property
    def parts(self) -> tuple[int, ...] | None:
        """Return the number of parts per dimension of the layout."""
        return None if self.layout is None else tuple([n_parts(cut) for cut in self.layout])

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements."""
        return prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class EinOp:
    """An EinOp is one operation of a graph of einsums: labels, extents and the names of its inputs.

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
    whole
        Labels that must not be cut.
    fixed
        The cut, where it is prescribed: parts by label; labels that are left out have one.
    itemsize
        Bytes of an element of the result.
    """

    terms: tuple[tuple[Label, ...], ...]
    result: tuple[Label, ...]
    inputs: tuple[str, ...]
    extents: Mapping[Label, int]
    join: str = "mul"
    agg: str = "sum"
    whole: frozenset[Label] = frozenset()
    fixed: Mapping[Label, int] | None = None
    itemsize: int = 8

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """Return all distinct labels: those of the result first."""
        return tuple(dict.fromkeys([*self.result, *[x for term in self.terms for x in term]]))

    @cached_property
    def aggregated(self) -> tuple[Label, ...]:
        """Return the labels of the inputs that the result lacks."""
        return tuple([x for x in self.labels if x not in self.result])

    def columns(self, labels: Iterable[Label]) -> list[int]:
        """Return where some labels stand among all of the operation: their columns in its partition vectors."""
        return [self.labels.index(x) for x in labels]

    def size(self, labels: Iterable[Label]) -> int:
        """Return the elements of an array that has these labels."""
        return prod([self.extents[x] for x in labels])

    @property
    def shape(self) -> Shape:
        """Return the shape of the result."""
        return tuple([self.extents[x] for x in self.result])

    @property
    def nbytes(self) -> int:
        """Return the bytes of the result."""
        return prod(self.shape) * self.itemsize

    @property
    def is_contraction(self) -> bool:
        """Return whether it joins several inputs and aggregates."""
        return len(self.terms) > 1 and bool(self.aggregated)

    @cached_property
    def kernel_kind(self) -> KernelKind:
        """Return what its kernels do: products of matrices, other contractions, or one pass over elements."""
        if not self.is_contraction:
            return "map"
        if (self.join, self.agg) != ("mul", "sum") or len(self.terms) != 2:
            return "join"
        first, second = map(set, self.terms)
        free = set(self.result)
        return "gemm" if free & (first - second) and free & (second - first) else "join"

    @property
    def point_flops(self) -> float:
        """Return the operations for one point of all loops."""
        return 2.0 if self.aggregated else 1.0

    @cached_property
    def structure(self) -> tuple[object, ...]:
        """Return all but the names: operations that are equal in it are planned alike."""
        return (
            self.terms,
            self.result,
            tuple(self.extents.items()),
            self.whole,
            None if self.fixed is None else tuple(self.fixed.items()),
            self.itemsize,
            self.kernel_kind,
        )


@dataclass(frozen=True)
class EinGraph:
    """An EinGraph holds the operations of a program in topological order: the paper's problem.

    Parameters
    ----------
    inputs, ops
        By name; the names of an operation's inputs are among them and before it.
    equal
        Groups of names whose arrays must be cut alike.
    """

    inputs: Mapping[str, Input]
    ops: Mapping[str, EinOp]
    equal: tuple[tuple[str, ...], ...] = ()
    #: What a graph file says: kernels per operation, and kind of splits.
    p: int | None = None
    parts: str | None = None

    @cached_property
    def edges(self) -> tuple[tuple[str, str, int], ...]:
        """Return (producer, consumer, number of the operand) between operations."""
        return tuple([(u, v, i) for v, op in self.ops.items() for i, u in enumerate(op.inputs) if u in self.ops])

    @cached_property
    def reads(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Return (consumer, number of the operand) of every input and result, in the order of the operations."""
        found: dict[str, list[tuple[str, int]]] = {name: [] for name in (*self.inputs, *self.ops)}
        for v, op in self.ops.items():
            for i, u in enumerate(op.inputs):
                found[u].append((v, i))
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def tied(self) -> Mapping[str, tuple[str, ...]]:
        """Return by name the group of names that it must be cut like, of those that are in one."""
        return {name: group for group in self.equal for name in group}

    def shape(self, name: str) -> Shape:
        """Return the shape of an input or a result."""
        return self.array(name).shape

    def array(self, name: str) -> Input | EinOp:
        """Return what makes an input or result: it has ``shape``, ``itemsize`` and ``nbytes``."""
        return self.inputs[name] if name in self.inputs else self.ops[name]

    def smallest_itemsize(self, v: str) -> int:
        """Return the smallest itemsize of the arrays of an operation."""
        return min([self.ops[v].itemsize, *[self.array(u).itemsize for u in self.ops[v].inputs]])

    @property
    def is_tree(self) -> bool:
        """Return whether every result is consumed at most once."""
        sources = [u for u, _, _ in self.edges]
        return len(sources) == len(set(sources))

    def with_layouts(self, layouts: Mapping[str, tuple[AxisCut, ...]]) -> EinGraph:
        """Return the graph with inputs that lie as given.

        Raises
        ------
        ShardingError
            If there is no such input, or a layout does not fit its shape.
        """
        inputs = dict(self.inputs)
        for name, layout in layouts.items():
            if name not in inputs:
                raise ShardingError(f"layouts: there is no input {name!r}")
            shape = inputs[name].shape
            if len(layout) != len(shape) or any(n_parts(cut) < 1 for cut in layout):
                raise ShardingError(f"input {name!r}: layout {list(layout)} does not fit the shape {list(shape)}")
            inputs[name] = replace(inputs[name], layout=tuple(layout), workers=None)
        return replace(self, inputs=inputs)

    def with_ties(self, equal: tuple[tuple[str, ...], ...]) -> EinGraph:
        """Return the graph with groups of names that are cut alike, beside those that it has; groups that share a name
        become one.

        Raises
        ------
        ShardingError
            If a name is unknown, or the ranks of a group differ.
        """
        groups: list[list[str]] = []
        for group in (*self.equal, *equal):
            for name in group:
                if name not in self.inputs and name not in self.ops:
                    raise ShardingError(f"equal: there is no node {name!r}")
            if len({len(self.shape(name)) for name in group}) > 1:
                raise ShardingError(f"equal: {', '.join(group)} have different ranks")
            joined = [other for other in groups if set(other) & set(group)]
            groups = [other for other in groups if other not in joined]
            groups.append(list(dict.fromkeys([name for other in (*joined, group) for name in other])))
        return replace(self, equal=tuple([tuple(group) for group in groups if len(group) > 1]))


def parse_expr(text: str) -> tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...]]:
    """Return the labels that einsum text such as ``"ij,jk->ik"`` names.

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
