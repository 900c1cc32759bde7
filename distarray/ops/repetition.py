"""Elements more than once: repeat and tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.arguments import MAX_NDIM, host_positions, integers, parse_shape, refuse_loose_axis, shown
from distarray.expr.affine import Affine
from distarray.expr.bind import bind_create, bind_get, bind_reshape
from distarray.expr.expr import Expr
from distarray.expr.side_by_side import side_by_side
from distarray.ops.creation import EMPTY
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.indexing import along, take
from distarray.types import Shape


@ready_made(1)
@side_by_side
def repeat(x: Array, repeats: Any, /, axis: int | None = None) -> Array:
    """Return each element `repeats` times along `axis`, of the flattened array by default.

    An array of repeats, one for each element, is read at the call: the shape of the result depends on it.
    """
    refuse_loose_axis(axis)
    node, box = one_array("repeat", x)
    node, axis = along(node, axis)
    n = node.shape[axis]
    many = host_positions(repeats, "repeats")
    if many.ndim > 1:
        raise ValueError(f"repeats={shown(repeats)}: object too deep for desired array")
    if many.shape not in ((), (1,)) and len(many) != n:
        raise ValueError(
            f"operands could not be broadcast together with shape ({n},) ({len(many)},) along axis={axis}: "
            f"repeats={shown(repeats)}"
        )
    if n and (many < 0).any():
        raise ValueError(f"repeats may not contain negative values: repeats={shown(repeats)}")
    if many.size != 1:
        return box(take(node, np.repeat(np.arange(n), many), axis=axis))
    counts = max(int(many.reshape(())), 0)
    # repeat(x, r) = reshape(broadcast(x[..., :, None], r))
    lens = Affine.identity(node.shape).expanded(axis + 1)
    lens = lens.broadcast((*node.shape[: axis + 1], counts, *node.shape[axis + 1 :]))
    return box(bind_reshape(bind_get(node, lens), (*node.shape[:axis], n * counts, *node.shape[axis + 1 :])))


@ready_made(1)
def tile(x: Array, repetitions: int | Sequence[int], /) -> Array:
    """Return `x` beside itself: so many times along each axis."""
    node, box = one_array("tile", x)
    is_mask = getattr(repetitions, "dtype", None) == np.bool  # whose truth values are counts
    times = integers(np.asarray(repetitions, np.intp) if is_mask else repetitions, "repetitions")
    ndim = max(node.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    if any(t < 0 for t in times):
        raise ValueError(f"negative dimensions are not allowed: repetitions={times}")
    return box(_tiled(bind_reshape(node, (1,) * (ndim - node.ndim) + node.shape), times))


def _tiled(node: Expr, times: Shape) -> Expr:
    shape = node.shape
    result = parse_shape(tuple([t * n for t, n in zip(times, shape)]), "the shape of the tiled array")
    if 0 in result:
        return bind_create(EMPTY, result, node.dtype, node.env)
    if node.ndim + sum(t > 1 and n > 1 for t, n in zip(times, shape)) > MAX_NDIM:
        # An axis that is not repeated is one with the axis before it, the elements of which come along. Where no two
        # axes are one, each is repeated: so many axes of more than one element have more elements than an array may.
        blocks: list[tuple[int, int]] = []
        for t, n in zip(times, shape):
            if blocks and (t == 1 or blocks[-1][1] == 1 == n):
                blocks[-1] = (blocks[-1][0] * t, blocks[-1][1] * n)
            else:
                blocks.append((t, n))
        joined = bind_reshape(node, tuple([n for _, n in blocks]))
        return bind_reshape(_tiled(joined, tuple([t for t, _ in blocks])), result)
    # tile(x, t) = reshape(broadcast(x[None, :, None, :], t0, n0, t1, n1)), new axes only where both are more than one
    places: list[int] = []
    spread: list[int] = []
    for t, n in zip(times, shape):
        places.append(len(spread) + (t != 1 != n))
        spread += [t, n] if t != 1 != n else [t * n]
    terms = tuple([(place, 0, 1) if n != 1 else (None, 0, 0) for place, n in zip(places, shape)])
    return bind_reshape(bind_get(node, Affine(tuple(spread), terms)), result)
