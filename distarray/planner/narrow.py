"""Narrowing: the nodes that give some elements of a pending array, from no more than those need.

A slice of a chain of elementwise operations is computed as a slice of each, and so is a slice through a reshape: its
rows are a run of elements of the source. What is looked at in parts, as printing looks at the corners of an array,
needs only parts. The planner alone pushes slices through elementwise operations, when it groups them into stages;
a reshape is a stage of its own, and whoever reads a stage reads all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from distarray.expr.bind import bind_get, bind_reshape
from distarray.expr.expr import Expr, postorder
from distarray.expr.lens import Affine
from distarray.planner.graph import reshape_groups
from distarray.sharding.boxes import Box

__all__ = ["narrowed"]


def narrowed(node: Expr) -> Expr:
    """A node of the same value that needs fewer elements of what is pending; the node itself if there is none.

    What becomes of pending nodes that others read too is not touched: they are made again in part, so this is for
    small parts of large arrays that are looked at once.
    """
    order = [n for n in postorder([node]) if n.memo is None]
    need: dict[int, Box] = {id(node): _whole(node)}
    for n in reversed(order):
        for operand, box in _needed(n, need[id(n)]) if id(n) in need else ():
            known = need.get(id(operand))
            need[id(operand)] = box if known is None else tuple(map(_hull, known, box))
            if not all(box):
                return node  # nothing is read: there is nothing to be saved
    made: dict[int, Expr] = {}
    for n in order:
        if id(n) in need:
            made[id(n)] = _restricted(n, need, made)
    return made[id(node)]


def _whole(node: Expr) -> Box:
    # several results have several shapes: nobody asks for a part of them
    return () if isinstance(node.dtype, tuple) else tuple(map(range, node.shape))


def _hull(a: range, b: range) -> range:
    return range(min(a.start, b.start), max(a.stop, b.stop))


def _needed(node: Expr, box: Box) -> Iterator[tuple[Expr, Box]]:
    """What a box of a node needs of each operand: smallest boxes without gaps."""
    kind = node.op.kind
    for operand in node.nodes():
        if kind == "map":
            yield operand, _broadcast(operand, box)
        elif kind == "get":
            # not min and max, which walk a range
            yield operand, tuple([_hull(r[:1], r[-1:]) if r else r for r in node.runtime.source_box(box)])
        elif kind == "reshape":
            rows: list[range] = list(map(range, operand.shape))
            for old, new in reshape_groups(operand.shape, node.shape):
                if old:
                    rows[old[0]] = _rows(operand.shape, old, _run(node.shape, new, box))
            yield operand, tuple(rows)
        else:
            yield operand, _whole(operand)


def _broadcast(operand: Expr, box: Box) -> Box:
    """What an elementwise operation on a box reads of an operand that broadcasts."""
    last = box[len(box) - len(operand.shape) :]
    return tuple([range(n) if n == 1 else r for n, r in zip(operand.shape, last, strict=True)])


def _run(shape: tuple[int, ...], axes: tuple[int, ...], box: Box) -> range:
    """The elements of a group of axes, in C order, that rows of its first axis cover."""
    if not axes:
        return range(1)
    inner = prod([shape[a] for a in axes[1:]])
    return range(box[axes[0]].start * inner, box[axes[0]].stop * inner)


def _rows(shape: tuple[int, ...], axes: tuple[int, ...], run: range) -> range:
    """The rows of the first axis of a group that hold a run of its elements."""
    inner = prod([shape[a] for a in axes[1:]])
    return range(run.start // inner, -(-run.stop // inner))


def _restricted(node: Expr, need: dict[int, Box], made: dict[int, Expr]) -> Expr:
    """The node of the needed box of a node."""
    box = need[id(node)]
    operands = node.nodes()
    if box == _whole(node) and all(made.get(id(o), o) is o for o in operands):
        return node
    kind = node.op.kind
    if kind == "map":
        parts: list[Any] = [_part(o, _broadcast(o, box), need, made) if type(o) is Expr else o for o in node.operands]
        shape = tuple(map(len, box))
        return Expr(
            node.op,
            tuple(parts),
            shape,
            node.dtype,
            node.env,
            node.params,
            node.runtime,
            None,
            node.origin,
            node.errstate,
        )
    if kind == "get":
        (source,) = operands
        return bind_get(made.get(id(source), source), node.runtime.restricted(box, _held(source, need)))
    if kind == "reshape":
        return _reshaped(node, box, need, made)
    return _sliced(node, _whole(node), box)


def _held(node: Expr, need: dict[int, Box]) -> Box:
    """The box of a node that what was made of it holds."""
    return _whole(node) if node.memo is not None else need[id(node)]


def _part(node: Expr, box: Box, need: dict[int, Box], made: dict[int, Expr]) -> Expr:
    return _sliced(made.get(id(node), node), _held(node, need), box)


def _sliced(held: Expr, frame: Box, box: Box) -> Expr:
    """A box of what holds the box `frame`."""
    return (
        held if box == frame else bind_get(held, Affine.identity(tuple([r.stop for r in frame])).restricted(box, frame))
    )


def _reshaped(node: Expr, box: Box, need: dict[int, Box], made: dict[int, Expr]) -> Expr:
    (source,) = node.nodes()
    frame = _held(source, need)
    groups = reshape_groups(source.shape, node.shape)
    flat, runs, shape = [], [], []
    for old, new in groups:
        inner = prod([source.shape[a] for a in old[1:]])
        rows = frame[old[0]] if old else range(1)
        flat.append(range(rows.start * inner, rows.stop * inner))
        runs.append(_run(node.shape, new, box))
        shape += [len(box[a]) if a == new[0] else node.shape[a] for a in new]
    held = bind_reshape(made.get(id(source), source), tuple(map(len, flat)))
    rows_of = bind_reshape(_sliced(held, tuple(flat), tuple(runs)), tuple(shape))
    firsts = {new[0] for _, new in groups if new}
    covered = tuple([r if a in firsts else range(node.shape[a]) for a, r in enumerate(box)])
    return _sliced(rows_of, covered, box)
