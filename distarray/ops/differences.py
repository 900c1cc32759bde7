"""Differences of neighbours along an axis."""

from __future__ import annotations

import numpy as np

from distarray.arguments import host_array, integer, normalize_axis, shown
from distarray.expr.bind import unbox
from distarray.expr.side_by_side import side_by_side
from distarray.ops.creation import operand_node
from distarray.ops.elementwise import astype, not_equal, subtract
from distarray.ops.families import Array, by_numpy, one_array
from distarray.ops.joining import as_arrays, concat
from distarray.ops.manipulation import broadcast_to, ravel, sliced
from distarray.types import Shape


def diff(x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array = None, append: Array = None) -> Array:
    """Return the `n`-th differences of neighbours along `axis`, with values before and after if given."""
    n = integer(n, "n")
    if n == 0:
        return x
    if n < 0:
        raise ValueError(f"order must be non-negative but got n={n}")
    node, box = one_array("diff", x)
    if node.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis(axis, node.ndim)
    parts = [x]
    for name, value, at in (("prepend", prepend, 0), ("append", append, 2)):
        if value is not None:
            extra = operand_node(unbox("diff", (x, value)).nodes[1], node.env)
            if extra.ndim == 0:
                extra = broadcast_to(extra, (*node.shape[:axis], 1, *node.shape[axis + 1 :]))
            if _beside_axis(extra.shape, axis) != _beside_axis(node.shape, axis):
                raise ValueError(
                    f"{name}={shown(value)} of shape {extra.shape} must match an array of shape {node.shape} in all "
                    f"axes but axis={axis}"
                )
            parts.insert(at, box(extra))
    joined = concat(parts, axis=axis) if len(parts) > 1 else x
    node, box = one_array("diff", joined)
    function = not_equal if node.dtype.kind == "b" else subtract
    for _ in range(min(n, node.shape[axis])):  # further ones are empty too
        m = max(node.shape[axis] - 1, 0)
        node = function(sliced(node, axis, min(1, node.shape[axis]), m), sliced(node, axis, 0, m))
    # An empty axis has no differences; a difference of moments is still a duration.
    return box(astype(node, function(node, node).dtype) if node.dtype.kind == "M" else node)


def _beside_axis(shape: Shape, axis: int) -> tuple[Shape, Shape] | None:
    """Return the extents before and after an axis; None if there is no such axis."""
    return (shape[:axis], shape[axis + 1 :]) if axis < len(shape) else None


@by_numpy(np.ediff1d)
@side_by_side
def ediff1d(ary: Array, to_end: Array = None, to_begin: Array = None) -> Array:
    """Return differences of neighbours of the flattened array, with values before and after if given."""
    dtype = one_array("ediff1d", ary)[0].dtype
    if dtype.kind == "b":
        subtract(ary, ary)  # numpy's error: only `diff` takes its `not_equal` for booleans
    parts = [diff(ravel(ary))]
    for name, value, at in (("to_begin", to_begin, 0), ("to_end", to_end, 2)):
        if value is None:
            continue
        given = value.dtype if hasattr(value, "dtype") else host_array(value, name).dtype
        if not np.can_cast(given, dtype, "same_kind"):
            raise TypeError(
                f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule: {given} is not "
                f"with {dtype}"
            )
        parts.insert(at, value)
    if len(parts) == 1:
        return parts[0]
    return concat([ravel(p) for p in as_arrays("ediff1d", parts)], dtype=dtype)
