"""Products and systems of tensors: what numpy has beside matrices, as compositions of what is done with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import wraps
from typing import Any

import numpy as np

from distarray.arguments import integer, integers, naming, normalize_axis, sequence, shown
from distarray.array.array import DistArray
from distarray.array.out import into
from distarray.composed.views import all_beside, as_distarray, as_number, moveaxis, permute_dims, without_number
from distarray.errors import warn_user
from distarray.expr.side_by_side import side_by_side
from distarray.ops import contractions, einsums, joining, lenses, linalg
from distarray.ops.families import ready_made
from distarray.ops.linalg import LinAlgError
from distarray.ops.subscripts import parse_subscripts, resolve_ellipses
from distarray.types import NBytesLike


@ready_made(2, is_boxed=True)
@side_by_side
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> DistArray:
    """Return the cross product of vectors of three elements; the other axes broadcast.

    Vectors of two elements, whose third is 0, are deprecated, and refused from NumPy 2.5 on, as there.

    Parameters
    ----------
    axisa, axisb, axisc
        Where the vectors of `a`, of `b` and of the result lie.
    axis
        All three of them.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = all_beside(a, b)
    if not x.ndim or not y.ndim:
        raise ValueError("At least one array has zero dimension")
    x = moveaxis(x, normalize_axis(axisa, x.ndim, "axisa"), -1)
    y = moveaxis(y, normalize_axis(axisb, y.ndim, "axisb"), -1)
    sizes = x.shape[-1], y.shape[-1]
    if not {*sizes} <= {2, 3}:
        raise ValueError(
            f"incompatible dimensions for cross product (dimension must be 2 or 3): {sizes[0]} of a along "
            f"axisa={axisa}, {sizes[1]} of b along axisb={axisb}"
        )
    if 2 in sizes:
        if np.lib.NumpyVersion(np.__version__) >= "2.5.0":
            raise ValueError(
                f"Both input arrays must be (arrays of) 3-dimensional vectors, but they are {sizes[0]} and {sizes[1]} "
                "dimensional instead."
            )
        warn_user(
            "Arrays of 2-dimensional vectors are deprecated. Use arrays of 3-dimensional vectors instead. (deprecated "
            "in NumPy 2.0)",
            DeprecationWarning,
        )
    if {x.dtype.kind, y.dtype.kind} & {"m", "M"}:
        np.cross(np.empty((0, 3), x.dtype), np.empty((0, 3), y.dtype))  # which multiplies in a common dtype
    if sizes == (2, 2):
        return without_number(x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0])
    made: DistArray
    if sizes == (3, 3):
        made = linalg.cross(x, y)
    else:
        # What would be multiplied by the third number that a vector lacks is left out: it may be infinite.
        a, b = [x[..., i] for i in range(sizes[0])], [y[..., i] for i in range(sizes[1])]
        sides = (a[1] * b[2], -(a[0] * b[2])) if sizes[0] == 2 else (-(a[2] * b[1]), a[2] * b[0])
        made = joining.stack([*sides, a[0] * b[1] - a[1] * b[0]], axis=-1)
    return moveaxis(made, -1, normalize_axis(axisc, made.ndim, "axisc"))


@wraps(einsums.einsum)
def einsum(*operands: Any, **options: Any) -> DistArray:
    view = None if options.keys() - {"optimize"} else _einsum_view(operands)
    if view is not None:
        return view
    made = einsums.einsum(*operands, **options)
    out = options.get("out")
    if out is None:
        return as_number(made)
    return into(out, made, casting=options.get("casting", "safe"), broadcasts=True)


def _einsum_view(operands: Sequence[Any]) -> DistArray | None:
    """Return an einsum of one array that aggregates nothing: its axes in another order, or a diagonal of some; a view
    that can be written into, as numpy's. None of all else.
    """
    if len(operands) > 3 or (len(operands) == 3 and isinstance(operands[0], str)):
        return None  # several arrays, found without reading the text
    terms, result, arrays = parse_subscripts(operands)
    if len(arrays) != 1 or not isinstance(arrays[0], DistArray):
        return None
    x = arrays[0]
    ((*labels,),), goal = resolve_ellipses(terms, result, [x])
    if not goal or {*labels} != {*goal} or len({*goal}) != len(goal):
        return None
    for label in goal:
        while labels.count(label) > 1:
            i, j = [k for k, other in enumerate(labels) if other == label][:2]
            if x.shape[i] != x.shape[j]:
                return None  # it broadcasts, or is wrong
            x = x._view(lenses.diagonal_lens(x.shape, 0, i, j))
            labels = [other for k, other in enumerate(labels) if k not in (i, j)] + [label]
    return permute_dims(x, [labels.index(label) for label in goal])


def einsum_path(
    *operands: Any,
    optimize: Any = "greedy",
    einsum_call: bool = False,
    join: Any = "mul",
    agg: Any = "sum",
    memory_limit: NBytesLike | None = None,
) -> Any:  # numpy's path and text
    """Return in which order the operands of an ``einsum`` are joined, and what that costs: numpy's path and text.

    Parameters
    ----------
    operands, join, agg, memory_limit
        As for ``einsum``; nothing of the arrays is looked at but their shapes and how they lie.
    optimize
        As for ``einsum``. What numpy knows (``greedy``, ``optimal``, False, True, an explicit path) gives numpy's
        answer; ``auto`` and the other strategies of opt_einsum the order that ``einsum`` takes.

    Returns
    -------
    path, text
        ``optimize=path`` takes the same order, here and in numpy.
    """
    if not isinstance(optimize, bool | str | list | tuple | None):
        raise TypeError(f"optimize={shown(optimize)} must be a name, an order or a bool, not {type(optimize).__name__}")
    is_numpys = not isinstance(optimize, str) or optimize in ("greedy", "optimal")
    if not is_numpys or (join, agg, memory_limit) != ("mul", "sum", None):
        order = einsums.einsum_order(*operands, join=join, agg=agg, optimize=optimize, memory_limit=memory_limit)
        optimize = ["einsum_path", *order]
    dummies = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, DistArray) else x  # no memory
        for x in operands
    ]
    path: Any = np.einsum_path  # its stub knows fewer arguments
    with naming(subscripts=operands[0] if operands else None, optimize=optimize):
        return path(*dummies, optimize=optimize, einsum_call=einsum_call)


@wraps(contractions.tensordot)
def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> DistArray:
    return without_number(contractions.tensordot(x1, x2, axes))


@wraps(linalg.matrix_power)
def matrix_power(x: Any, n: int, /) -> Any:
    made = linalg.matrix_power(x, n)
    return x if n == 1 and isinstance(x, DistArray) else made  # numpy returns the array itself


def tensorinv(a: Any, ind: int = 2) -> DistArray:
    """Return the inverse of a tensor whose first `ind` axes are the rows of a matrix, for ``tensordot`` with `ind`
    axes.
    """
    x = as_distarray(a)
    if integer(ind, "ind") <= 0:
        raise ValueError(f"Invalid ind argument: ind={ind}")
    n = math.prod(x.shape[ind:])
    if x.size != n * n:
        raise LinAlgError(f"ind={ind}: {x.shape[:ind]} and {x.shape[ind:]} must have as many elements")
    inverse = linalg.inv(x.reshape((n, -1)))
    return inverse.reshape(x.shape[ind:] + x.shape[:ind])


@side_by_side
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> DistArray:
    """Return the `x` for which ``tensordot(a, x, x.ndim)`` is `b`; `axes` of `a` are moved to its end first."""
    x, y = all_beside(a, b)
    order = list(range(x.ndim))
    for axis in () if axes is None else integers(sequence(axes, "axes", "integers"), "axes", truths=False):
        if axis not in order:
            raise ValueError(f"axes={shown(axes)}: there is no axis {axis} in {x.ndim} dimensions")
        order.remove(axis)
        order.insert(x.ndim, axis)
    x = x.transpose(order)
    shape = x.shape[-(x.ndim - y.ndim) :]
    n = math.prod(shape)
    if x.size != n * n:
        raise LinAlgError(
            f"axes={shown(axes)}: Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == "
            f"prod(a.shape[:b.ndim]), but the shapes are {x.shape} and {y.shape}"
        )
    return linalg.solve(x.reshape((n, n)), y.ravel()).reshape(shape)
