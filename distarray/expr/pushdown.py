"""Reads of arrays that nothing can hold, pushed down to what they are made of.

A part of a written, reshaped or computed array is read from the stored array: it is made whole, once. An array larger
than the memory of all its members cannot be, yet a few elements of it may depend on little. So a read of one passes
through what makes it, when it is defined: ``x = zeros(10**12); x[5] = 1; x[5]`` reads a 1, ``x[6]`` an element of the
zeros. `rewrite` calls `pushed` for its row of ``get``; smaller arrays never come here, so that loops over their
elements have one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

from distarray.expr.affine import Affine, Term
from distarray.expr.expr import GET, PUT, RESHAPE, Expr
from distarray.expr.lens import reshape_groups
from distarray.sharding.boxes import Box, full, intersect_boxes

__all__ = ["is_beyond_memory", "pushed"]

#: Bytes of arrays that any member can hold: nobody is asked about them.
SMALL = 1 << 28
#: A read is pushed down if the elements that it needs are so small a share of those that there are.
SHARE = 4

#: Whether an array is larger than the memory of its members; the execution layer, which knows them, assigns it.
is_beyond_memory: Callable[[Expr], bool] | None = None

_Simplify: TypeAlias = Callable[[Expr], Expr]
#: Operands and run-time parameter of a pending node.
_Found: TypeAlias = tuple[tuple[Any, ...], Any]


def pushed(node: Expr, simplify: _Simplify) -> Expr | None:
    """A read of an array beyond memory, as reads of what that is made of; None where it stays as it is.

    Parameters
    ----------
    node
        A ``get``.
    simplify
        Makes nodes simple.
    """
    x: Any = node.operands[0]
    if (found := _beyond(x)) is None or not all(node.shape) or _has_diagonal(node.runtime):
        return None
    if x.op is PUT:
        return _get_of_puts(node, simplify)
    if x.op is RESHAPE:
        return _get_of_reshape(node, found, simplify)
    if x.op.kind == "map" and node.size * SHARE <= x.size:
        return _get_of_map(node, x, found, simplify)
    return None


def _beyond(x: Expr) -> _Found | None:
    """Operands and parameter of a pending array that nothing can hold."""
    if is_beyond_memory is None or type(x.dtype) is tuple or x.nbytes <= SMALL:
        return None
    # Read before the memo is: see `rewrite`.
    operands, runtime = x.operands, x.runtime
    return (operands, runtime) if x.memo is None and operands and is_beyond_memory(x) else None


def _has_diagonal(lens: Affine) -> bool:
    used = [axis for axis, _, _ in lens.terms if axis is not None]
    return len(set(used)) < len(used)


def _read(like: Expr, x: Expr, lens: Affine, simplify: _Simplify) -> Expr:
    return simplify(Expr(GET, (x,), lens.shape, x.dtype, x.env, (), lens, None, like.origin, like.errstate))


def _reshaped(like: Expr, x: Expr, shape: tuple[int, ...], simplify: _Simplify) -> Expr:
    return simplify(Expr(RESHAPE, (x,), shape, x.dtype, x.env, (), None, None, like.origin, like.errstate))


def _of_box(box: Box) -> Affine:
    """The lens that shows a box."""
    return Affine(tuple(map(len, box)), tuple([(a, r.start, r.step if len(r) > 1 else 1) for a, r in enumerate(box)]))


# ------------------------------------------------------------------------------------------------ written arrays


def _get_of_puts(node: Expr, simplify: _Simplify) -> Expr | None:
    """get(put(x, p, v), q) -> put(get(x, q), p in q, get(v, q in p)), for a chain of writes at once.

    Writes that `q` does not see are left out.
    """
    lens: Affine = node.runtime
    used = {axis for axis, _, _ in lens.terms}
    # What is read is written to, so without what a broadcast repeats.
    once = Affine(tuple([n if a in used else 1 for a, n in enumerate(lens.shape)]), lens.terms)
    seen = once.source_box(full(once.shape))
    x: Any = node.operands[0]
    if prod(once.shape) * SHARE > x.size:
        return None
    writes: list[tuple[Affine, Any]] = []
    while x.op is PUT and (found := _beyond(x)) is not None:
        (below, value), written = found
        if _has_diagonal(written):
            into = written.view_box(seen)
            if into is not None and once.shape != (1,) * len(once.shape):
                return None  # which of them the diagonal writes is no box
            common = None if into is None else seen
        else:
            common = intersect_boxes(seen, written.source_box(full(written.shape))) if all(written.shape) else None
        if common is not None:
            place = once.view_box(common)
            assert place is not None
            part = _of_box(place)
            whole = part.shape == once.shape
            if type(value) is Expr:
                if value.shape != written.shape:
                    value = _read(node, value, Affine.identity(value.shape).broadcast(written.shape), simplify)
                value = _read(node, value, _inside(once.compose(part), written), simplify)
                if whole and value.dtype == node.dtype:
                    x = None
                    break
            writes.append((part, value))
        x = below
    result = value if x is None else _read(node, x, once, simplify)
    for part, value in reversed(writes):
        result = simplify(
            Expr(PUT, (result, value), once.shape, node.dtype, node.env, (), part, None, node.origin, node.errstate)
        )
    if once.shape == lens.shape:
        return result
    return _read(node, result, Affine.identity(once.shape).broadcast(lens.shape), simplify)


def _inside(lens: Affine, written: Affine) -> Affine:
    """The lens from what another shows to what this one shows of the same array, which lies in it."""
    terms: list[Term] = [(None, 0, 0)] * len(written.shape)
    for (axis, start, step), (place, first, stride) in zip(lens.terms, written.terms, strict=True):
        if place is not None and written.shape[place] > 1:
            is_one = axis is None or lens.shape[axis] == 1
            terms[place] = (
                axis,
                (start - first) // stride,
                (1 if axis is not None else 0) if is_one else step // stride,
            )
    return Affine(lens.shape, tuple(terms))


# ----------------------------------------------------------------------------------------------- reshaped arrays


def _get_of_reshape(node: Expr, found: _Found, simplify: _Simplify) -> Expr | None:
    """get(reshape(x, s), q) -> a read of a reshape of the rows of x that q needs."""
    x: Any
    (x,), _ = found
    lens: Affine = node.runtime
    old, new = x.shape, node.operands[0].shape  # type: ignore[union-attr]  # an Expr
    box = lens.source_box(full(lens.shape))
    frame, rows = [range(0)] * len(new), [range(0)] * len(old)
    runs: list[tuple[int, int, int]] = []  # of each group: elements of the rows, and which of them the frame has
    for own, axes in reshape_groups(old, new):
        shape = [new[a] for a in axes]
        found_box = _enclosing([box[a] for a in axes], shape)
        start, stop = _run(found_box, shape)
        below = [old[a] for a in own]
        found_rows = _enclosing_run(start, stop, below)
        low, high = _run(found_rows, below)
        runs.append((high - low, start - low, stop - low))
        for a, r in zip(axes, found_box, strict=True):
            frame[a] = r
        for a, r in zip(own, found_rows, strict=True):
            rows[a] = r
    if prod(map(len, rows)) * SHARE > x.size:
        return None
    part = _read(node, x, _of_box(tuple(rows)), simplify)
    part = _reshaped(node, part, tuple([n for n, _, _ in runs]), simplify)
    part = _read(node, part, _of_box(tuple([range(a, b) for _, a, b in runs])), simplify)
    part = _reshaped(node, part, tuple(map(len, frame)), simplify)
    return _read(node, part, lens.restricted(full(lens.shape), tuple(frame)), simplify)


def _enclosing(box: Sequence[range], shape: Sequence[int]) -> list[range]:
    """The smallest box around another whose elements follow each other in C order."""
    found = []
    for i, r in enumerate(box):
        found.append(range(r.start, r[-1] + 1))
        if len(found[-1]) > 1:
            return [*found, *map(range, shape[i + 1 :])]
    return found


def _enclosing_run(start: int, stop: int, shape: Sequence[int]) -> list[range]:
    """The smallest such box around the elements start..stop."""
    first, last = [], []
    low, high = start, stop - 1
    for n in reversed(shape):
        low, a = divmod(low, n)
        high, b = divmod(high, n)
        first.append(a)
        last.append(b)
    return _enclosing([range(a, b + 1) if a <= b else range(b, a + 1) for a, b in zip(first, last)][::-1], shape)


def _run(box: Sequence[range], shape: Sequence[int]) -> tuple[int, int]:
    """First element and end of such a box in C order."""
    start = last = 0
    for r, n in zip(box, shape, strict=True):
        start, last = start * n + r.start, last * n + r[-1]
    return start, last + 1


# ------------------------------------------------------------------------------------------------ elementwise


def _get_of_map(node: Expr, x: Expr, found: _Found, simplify: _Simplify) -> Expr:
    """get(f(x, y), q) -> f(get(x, q), get(y, q))."""
    lens: Affine = node.runtime
    operands = [
        _read(node, o, Affine.identity(o.shape).broadcast(x.shape).compose(lens), simplify) if type(o) is Expr else o
        for o in found[0]
    ]
    return simplify(
        Expr(x.op, tuple(operands), node.shape, x.dtype, x.env, x.params, found[1], None, x.origin, x.errstate)
    )
