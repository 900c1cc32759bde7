"""Parts of pending arrays, computed from parts of what those are made of.

A part of a written, reshaped or computed array is read from the stored array as a rule: the array is made whole, once,
and a loop over its parts has one plan. Two readers want a part alone. `bind_get` hands `pushed` every read it binds: an
array larger than the memory of all its members cannot be made, yet a few elements of it may depend on little
(``x = zeros(10**12); x[5] = 1; x[5]`` reads a 1, ``x[6]`` an element of the zeros). Printing hands `narrowed` the
corners of an array, which are looked at once.

Both are one walk from users to operands, in the order of their numbers, so that it meets a node when all that is asked
of it is known: a node is divided once, however many read it, and the walk is linear in the nodes that it meets. What is
asked are strided boxes, exact as long as they are few; boxes that nearly touch are joined. A second walk, back from
operands to users, makes nodes of the boxes. Elements keep their bits: the same operations make them of the same
operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from math import gcd
from typing import Any, TypeAlias

from distarray import hooks
from distarray.expr.affine import Affine, Term
from distarray.expr.expr import GET, RESHAPE, Expr
from distarray.expr.lens import reshape_groups
from distarray.expr.rewrite import simplify
from distarray.sharding.boxes import Box, contains, full, size

#: A read is pushed down if the elements that it needs are so small a share of those that there are.
SHARE = 4
#: Bytes of an array from which on a look at a few of its elements may be pushed down.
LOOKED_AT = 1 << 20
#: So many boxes of a node are computed each by itself: the corners of a stencil that wraps around in three dimensions.
MANY = 8

#: What a box of a node needs of each operand (None: nothing), and what makes the box when these are there.
_Division: TypeAlias = tuple[list[Box | None], Callable[[list[Any]], Expr]]


def pushed(node: Expr) -> Expr:
    """Return a read of an array beyond memory, or a look at a few elements of what is made elementwise of what is read
    or drawn (`hooks.is_made_apart`), as reads of what the array is made of; the node itself where it stays as it is.

    Parameters
    ----------
    node
        Simple, and new.
    """
    if node.op is not GET or not (operands := node.operands) or hooks.is_beyond_memory is None:
        return node
    x: Any = operands[0]
    # Most others leave here, so that loops over their elements have one plan.
    if x.memo is not None:
        return node
    if hooks.is_beyond_memory(x):
        return _from_parts(node, _is_never_held, SHARE)
    if x.op.kind == "map" and x.is_live and x.nbytes >= LOOKED_AT and hooks.is_made_apart is not None:
        part = _from_parts(node, _is_elementwise, SHARE)
        if part is not node and hooks.is_made_apart(x, part):
            return part
    return node


def _is_elementwise(node: Expr) -> bool:
    return node.op is GET or node.op.kind == "map"


def _is_never_held(node: Expr) -> bool:
    return node.op is GET or (hooks.is_beyond_memory is not None and hooks.is_beyond_memory(node))


def narrowed(node: Expr) -> Expr:
    """Return a node of the same value that needs fewer elements of what is pending; the node itself if there is none.

    Pending nodes that others read too are not touched. They are made again in part, so this is for small parts of large
    arrays that are looked at once.
    """
    return _from_parts(node, lambda n: True, 1)


def _from_parts(root: Expr, is_divisible: Callable[[Expr], bool], share: int) -> Expr:
    """Return `root`, from boxes of the divisible nodes that it needs; none is divided of which over 1 / `share` is
    needed.
    """
    if not root.size:
        return root
    asked: dict[int, list[Box]] = {id(root): [full(root.shape)]}
    queue: list[tuple[int, Expr]] = [(-root.seq, root)]  # operands have lower numbers than users: see `expr_verifier`
    divided: list[tuple[Expr, tuple[Any, ...], list[Box], list[_Division]]] = []
    while queue:
        _, n = heappop(queue)
        found = n.unsettled()
        divide = _DIVIDE.get(n.op.kind)
        if found is None or divide is None or not is_divisible(n):
            continue
        operands: tuple[Any, ...] = found[0]
        runtime = found[1]
        boxes = _few(asked[id(n)])
        divisions = [divide(n, operands, runtime, box) for box in boxes]
        needed = [max([size(b) for b in (box, *needs) if b is not None]) for box, (needs, _) in zip(boxes, divisions)]
        if n.op is not GET and share * sum(needed) > n.size:  # a lens is free; whether to read so much, its source says
            continue
        divided.append((n, operands, boxes, divisions))
        for needs, _ in divisions:
            for o, need in zip(operands, needs, strict=True):
                if need is not None:
                    if id(o) not in asked:
                        heappush(queue, (-o.seq, o))
                    asked.setdefault(id(o), []).append(need)

    made: dict[int, list[tuple[Box, Expr]]] = {}
    parts: dict[tuple[int, Box], Expr] = {}

    def part(x: Expr, box: Box) -> Expr:
        if (id(x), box) not in parts:
            whole = full(x.shape), x
            frame, held = next((m for m in made.get(id(x), ()) if contains(m[0], box)), whole)
            parts[id(x), box] = _shown(held, frame, box)
        return parts[id(x), box]

    for n, operands, boxes, divisions in reversed(divided):
        if boxes == [full(n.shape)] and not any(id(o) in made for o in operands):
            continue  # it stays as it is
        made[id(n)] = [
            (box, make([o if need is None else part(o, need) for o, need in zip(operands, needs, strict=True)]))
            for box, (needs, make) in zip(boxes, divisions, strict=True)
        ]
    return made[id(root)][0][1] if id(root) in made else root


def _few(boxes: Sequence[Box]) -> list[Box]:
    """Return few boxes that contain these: two are joined if that costs at most as much again, or if there are too
    many.
    """
    found: list[Box] = []
    for box in dict.fromkeys(boxes):
        hulls = [tuple(map(_hull, box, other)) for other in found]
        costs = [size(hull) - size(other) for hull, other in zip(hulls, found, strict=True)]
        best = costs.index(min(costs)) if costs else -1
        if best >= 0 and (len(found) == MANY or costs[best] <= 2 * size(box) + size(found[best])):
            found[best] = hulls[best]
        else:
            found.append(box)
    return found


def _hull(a: range, b: range) -> range:
    """Return the smallest range that contains two, without gaps where one of them has a single element (its step is
    1).
    """
    return range(min(a.start, b.start), max(a[-1], b[-1]) + 1, gcd(a.step, b.step, b.start - a.start))


# ------------------------------------------------------------------------------------------------ new nodes


def _get(x: Expr, lens: Affine, like: Expr) -> Expr:
    return simplify(Expr(GET, (x,), lens.shape, x.dtype, x.env, (), lens, None, like.origin, like.errstate))


def _shown(x: Expr, frame: Box, box: Box) -> Expr:
    """Return a box of what has the elements of `frame`."""
    return x if box == frame else _get(x, Affine.identity(x.shape).restricted(box, frame), x)


def _reshaped(x: Expr, shape: Iterable[int], like: Expr) -> Expr:
    return simplify(Expr(RESHAPE, (x,), tuple(shape), x.dtype, x.env, (), None, None, like.origin, like.errstate))


def _remade(n: Expr, operands: list[Any], box: Box, runtime: Any) -> Expr:
    """Return a box of a node, by the same operation."""
    shape = tuple(map(len, box))
    return simplify(Expr(n.op, tuple(operands), shape, n.dtype, n.env, n.params, runtime, None, n.origin, n.errstate))


def _broadcasting(x: Any, box: Box) -> Box | None:
    """Return what an operation on a box reads of an operand that broadcasts."""
    if type(x) is not Expr:
        return None
    return tuple([range(1) if n == 1 else r for n, r in zip(x.shape, box[len(box) - x.ndim :], strict=True)])


# ------------------------------------------------------------------------------------------------ divisions
# One for each family: node, operands, run-time parameter (read before the memo was) and box.


def _of_map(node: Expr, operands: tuple[Any, ...], runtime: Any, box: Box) -> _Division:
    """Return get(f(x, y), q) as f(get(x, q), get(y, q))."""
    return [_broadcasting(o, box) for o in operands], lambda parts: _remade(node, parts, box, runtime)


def _of_get(node: Expr, operands: tuple[Any, ...], lens: Affine, box: Box) -> _Division:
    """Return get(get(x, p), q) as get(get(x, r), p . q), where r is what p . q sees."""
    need = lens.source_box(box)
    return [need], lambda parts: _get(parts[0], lens.restricted(box, need), node)


def _of_put(node: Expr, operands: tuple[Any, ...], written: Affine, box: Box) -> _Division:
    """Return get(put(x, p, v), q) as put(get(x, q), p in q, get(v, q in p)); a write that q does not see is left
    out.
    """
    value = operands[1]
    seen = written.view_box(box)
    if seen is None:
        return [box, None], lambda parts: parts[0]
    place = written.restricted(seen, box)
    need = _broadcasting(value, seen)
    if need is None or size(seen) < size(box) or value.dtype != node.dtype:
        return [box, need], lambda parts: _remade(node, parts, box, place)
    # All that is read was written.
    back = _inverse(place, tuple(map(len, box)))
    return [None, need], lambda parts: _get(
        parts[1], Affine.identity(parts[1].shape).broadcast(place.shape).compose(back), node
    )


def _inverse(lens: Affine, shape: tuple[int, ...]) -> Affine:
    """Return the lens from a view of all elements back to the source, whose shape is given."""
    terms: list[Term] = [(None, 0, 0)] * len(lens.shape)
    for i, (axis, start, step) in enumerate(lens.terms):
        if axis is not None and shape[i] > 1:
            terms[axis] = (i, -step * start, step)  # the step is 1 or -1
    return Affine(shape, tuple(terms))


def _of_reshape(node: Expr, operands: tuple[Any, ...], runtime: Any, box: Box) -> _Division:
    """Return get(reshape(x, s), q) as a read of a reshape of the rows of x that q needs."""
    old, new = operands[0].shape, node.shape
    frame, rows = [range(0)] * len(new), [range(0)] * len(old)
    lengths, runs = [], []  # of each group: how many elements its rows have, and which of them the frame has
    for own, axes in reshape_groups(old, new):
        shape, below = [new[a] for a in axes], [old[a] for a in own]
        found = _enclosing([box[a] for a in axes], shape)
        start, stop = _run(found, shape)
        found_rows = _enclosing_run(start, stop, below)
        low, high = _run(found_rows, below)
        lengths.append(range(high - low))
        runs.append(range(start - low, stop - low))
        for a, r in zip(axes, found, strict=True):
            frame[a] = r
        for a, r in zip(own, found_rows, strict=True):
            rows[a] = r

    def make(parts: list[Any]) -> Expr:
        flat = _reshaped(parts[0], map(len, lengths), node)
        flat = _shown(flat, tuple(lengths), tuple(runs))
        return _shown(_reshaped(flat, map(len, frame), node), tuple(frame), box)

    return [tuple(rows)], make


def _enclosing(box: Sequence[range], shape: Sequence[int]) -> list[range]:
    """Return the smallest box around another whose elements follow each other in C order."""
    found = []
    for i, r in enumerate(box):
        found.append(range(r.start, r[-1] + 1))
        if len(found[-1]) > 1:
            return [*found, *map(range, shape[i + 1 :])]
    return found


def _enclosing_run(start: int, stop: int, shape: Sequence[int]) -> list[range]:
    """Return the smallest such box around the elements start..stop."""
    first, last = [], []
    low, high = start, stop - 1
    for n in reversed(shape):
        low, a = divmod(low, n)
        high, b = divmod(high, n)
        first.append(a)
        last.append(b)
    return _enclosing([range(a, b + 1) if a <= b else range(b, a + 1) for a, b in zip(first, last)][::-1], shape)


def _run(box: Sequence[range], shape: Sequence[int]) -> tuple[int, int]:
    """Return the first element and the end of such a box in C order."""
    start = last = 0
    for r, n in zip(box, shape, strict=True):
        start, last = start * n + r.start, last * n + r[-1]
    return start, last + 1


_DIVIDE: dict[str, Callable[[Expr, tuple[Any, ...], Any, Box], _Division]] = {
    "get": _of_get,
    "map": _of_map,
    "put": _of_put,
    "reshape": _of_reshape,
}
