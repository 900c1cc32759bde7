"""The pending nodes as the planner sees them: numbered in canonical order, with the key of their plan.

The key holds structure, dtypes, shapes, shardings, environment, budget and the set of results that are kept. It does
not hold what varies from one run of a loop to the next: Python scalars, integer positions, slice offsets (their pattern
of touched tiles stands in for them), and extents that follow from those. Hence ``out[t] = f(out[t-1])`` and
``A[k+1:, k+1:] -= ...`` have one plan per pattern.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from distarray.expr.expr import Expr, Stored
from distarray.expr.lens import Affine, reshape_groups, touched
from distarray.planner.plan import Stage
from distarray.sharding.sharding import Sharding


@dataclass(slots=True)
class Graph:
    """A Graph is the nodes of an evaluation in canonical order, with the key under which plans serve it.

    Parameters
    ----------
    nodes
        Operands before users.
    operands
        For each node the numbers of its operands; None in the place of a Python scalar.
    kept
        Numbers of the nodes whose results are wanted.
    key
        Hashable; equal keys mean that one plan serves both graphs.
    """

    nodes: list[Expr]
    operands: list[tuple[int | None, ...]]
    kept: frozenset[int]
    key: tuple[Hashable, ...]

    def is_held(self, i: int) -> bool:
        """Return whether a created node is made once, stored, and read from there: it is kept, and not free to make
        again.
        """
        node = self.nodes[i]
        return node.memo is None and node.op.family.is_created and not node.op.repeatable and i in self.kept

    def is_made_on_the_spot(self, i: int, *, is_stored: bool) -> bool:
        """Return whether a node is made wherever it is read; not what is held, once it is stored."""
        node = self.nodes[i]
        return node.memo is None and node.op.family.is_created and not (is_stored and self.is_held(i))

    def lies(self) -> dict[int, Sharding | None]:
        """Return the types of what is stored before; None for what the client holds."""
        stored = {i: node.memo for i, node in enumerate(self.nodes) if node.memo is not None}
        return {i: None if memo.on_client else memo.sharding for i, memo in stored.items()}

    def base(self, written: int) -> int:
        """Return the number of the node of which this one is a new version; -1 if this is -1, for none."""
        if written < 0:
            return -1
        base = self.operands[written][0]
        assert base is not None, "what is written is an array"
        return base

    def read_by(self, stage: Stage) -> list[int]:
        """Return the numbers of the nodes that a stage reads, and of the one of which it makes a new version."""
        found = [access.node for access in stage.reads]
        return found if stage.written < 0 else [*found, self.base(stage.written)]

    def users(self) -> list[list[int]]:
        """Return for each node the numbers of the nodes that read it."""
        result: list[list[int]] = [[] for _ in self.nodes]
        for i, ops in enumerate(self.operands):
            for o in ops:
                if o is not None:
                    result[o].append(i)
        return result


def _lens_pattern(lens: Affine, source_shape: tuple[int, ...], lying: Sharding | None) -> Hashable:
    axes = tuple(t[0] for t in lens.terms)
    ones = _broadcast(lens.shape)
    if lying is None:
        return axes, ones
    return axes, ones, touched(lens, lying.boundaries(source_shape))


def _broadcast(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return which axes may broadcast, and which have no elements."""
    return tuple(n if n <= 1 else 2 for n in shape)


def _stored_key(node: Expr, memo: Stored) -> Hashable:
    sharding = memo.sharding
    if memo.on_client:
        # literals and small results: only where they broadcast matters
        return "client", node.dtype, _broadcast(node.shape), node.nbytes > 1 << 20
    if sharding.is_regular:
        return node.shape, node.dtype, sharding
    free = tuple(-1 if b is not None else n for n, b in zip(node.shape, sharding.bounds, strict=True))
    return free, node.dtype, sharding.axes, sharding.mesh, sharding.layout


def _pending_key(
    node: Expr, refs: tuple[int | None, ...], order: Sequence[Expr], lies: Sequence[Sharding | None]
) -> Hashable:
    """Return what a plan depends on of a node that has operands: by the kind of its operation.

    Parameters
    ----------
    refs
        Numbers of its operands.
    lies
        Where sharding is known before planning, that of the operands, and of the node last.
    """
    op, shape = node.op, node.shape
    if op.kind == "map":
        scalars = tuple(type(o) for o in node.operands if type(o) is not Expr)
        if all(type(o) is not Expr or o.shape == shape for o in node.operands):
            pattern: Hashable = len(shape)
        else:
            pattern = (len(shape),) + tuple(
                None if type(o) is not Expr or o.shape == shape else _broadcast(o.shape) for o in node.operands
            )
        return op.name, refs, node.dtype, node.params, scalars, pattern, node.pin, node.errstate
    if op.family.is_created:
        return op.name, shape, node.dtype, node.params, node.pin
    if op.kind in ("get", "put", "reshape"):
        inner = refs[0]
        assert inner is not None
        source = order[inner].shape
        if op.kind == "get":
            return "get", inner, _lens_pattern(node.runtime, source, lies[inner])
        if op.kind == "reshape":
            return "reshape", refs, len(shape), reshape_groups(source, shape), node.pin
        value = node.operands[1]
        if type(value) is Expr:
            spread: Any = None if value.shape == node.runtime.shape else _broadcast(value.shape)
        else:
            spread = type(value)
        return "put", refs, spread, _lens_pattern(node.runtime, source, lies[-1]), node.errstate
    ranks: tuple[Hashable, ...] = tuple(len(o.shape) if type(o) is Expr else -1 for o in node.operands)
    pin = node.pin
    if op.family.is_tiled:
        ranks += node.runtime.pattern
        pin = None if pin is None else pin.with_bounds(None)
    return op.name, refs, node.dtype, node.params, ranks, pin, node.errstate


def canonical(
    order: Sequence[Expr],
    keep: Collection[int],
    context: Hashable,
    stand_ins: Mapping[int, Expr] = MappingProxyType({}),
) -> Graph:
    """Return the graph of an evaluation: its nodes numbered, operands first, and the key under which its plan is found.

    Parameters
    ----------
    order
        Post-order walk (`postorder`), ending at memoised nodes.
    keep
        ``id`` of the nodes whose results are wanted.
    context
        Whatever else decides a plan: budget, configuration.
    stand_ins
        By ``id`` of a memoised node, or of a pending crossing, the node that is planned in its place: an array as it
        would lie. The nodes of an expression belong to everybody who reads them, so planning never changes one.
    """
    number: dict[int, int] = {}
    nodes: list[Expr] = []
    operands: list[tuple[int | None, ...]] = []
    key: list[Hashable] = [context]
    kept: list[int] = []
    lies: list[Sharding | None] = []  # where a node's sharding is known before planning
    first_env = order[0].env
    team = first_env.team  # by what it is: plans outlive clients
    key.append((None if team is None else (team.id, team.mesh), first_env.device))
    for i, node in enumerate(order):
        number[id(node)] = i
        if id(node) in stand_ins:
            node = stand_ins[id(node)]
        nodes.append(node)
        memo = node.memo
        if memo is not None:
            operands.append(())
            lies.append(None if memo.on_client else memo.sharding)
            key.append(_stored_key(node, memo))
            continue
        refs = tuple(number[id(o)] if type(o) is Expr else None for o in node.operands)
        operands.append(refs)
        lies.append(lies[refs[0]] if node.op.kind == "put" else node.pin)  # type: ignore[index]  # a put has a base
        key.append(_pending_key(node, refs, order, lies))
        if id(node) in keep:
            kept.append(i)
    for i, node in enumerate(order):
        if node.memo is not None and id(node) in keep:
            kept.append(i)
    frozen = frozenset(kept)
    key.append(tuple(sorted(frozen)))
    return Graph(nodes, operands, frozen, tuple(key))
