"""Reductions by labels: the elements of each segment of an axis, wherever they stand along it.

Every tile reduces its own elements to one row per segment, and these partial results combine in a tree: no element
moves, and labels need not be sorted. It is what a grouping by codes comes down to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.arguments import integer, normalize_axis, shown
from distarray.dtypes import as_dtype
from distarray.expr.bind import bind, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops import reductions
from distarray.ops.families import Array
from distarray.ops.manipulation import moveaxis
from distarray.ops.programs import asked
from distarray.types import DType, HostArray

#: params: (rule, name, number of segments, correction); operands: the array with the axis first, and its labels.
SEGMENT_REDUCE = declare("segment_reduce", "fold")
#: A `SEGMENT_REDUCE` whose labels are known only when it runs: its kernel raises where a label is no segment's number.
SEGMENT_REDUCE_ALL = declare("segment_reduce_all", "fold", may_raise=True)

_FUNCTIONS = ("sum", "prod", "max", "min", "mean", "var", "count", "any", "all", "first", "last")


def segment_reduce(
    x: Array,
    /,
    labels: Any,
    num_segments: int | None = None,
    *,
    axis: int = 0,
    func: str = "sum",
    ddof: float = 0,
    mode: str = "raise",
) -> Array:
    """Return the elements of `x` along `axis`, reduced segment by segment.

    Parameters
    ----------
    x
        The array.
    labels
        The segment of each index along `axis`: integers, in any order.
    num_segments
        Extent of the result along `axis`. By default one more than the largest label, which is computed for it at the
        call if `labels` is no host array; see the option ``data-dependent``.
    func
        ``sum``, ``prod``, ``max``, ``min``, ``mean``, ``var``, ``count`` (of elements), ``any``, ``all``, ``first`` or
        ``last`` (of the order along the axis).
    ddof
        Of ``var``: it is divided by the number of elements less this.
    mode
        What becomes of elements whose label is negative, or from `num_segments` on: ``"raise"``, an error; ``"drop"``,
        they are in no segment.

    Returns
    -------
    Array
        Of the shape of `x` but for `axis`. Segments without elements have the sum 0, the product 1, nan for mean and
        variance, 0 for first and last; of max and min the smallest and the largest number of the dtype.

    Raises
    ------
    TypeError
        If labels are no integers, or `x` has no order for max and min.
    ValueError
        If there is not one label for each index, or no such function or mode.
    IndexError
        If a label is no segment, unless they are dropped. Raised at the call: labels that are no host array are
        computed for it, unless errors are deferred.

    Notes
    -----
    Memory: one row per segment for every tile; nothing is exchanged but these rows.

    Examples
    --------
    >>> import distarray as dx
    >>> x = dx.asarray([1.0, 2.0, 3.0, 4.0])
    >>> dx.segment_reduce(x, [1, 0, 1, 3]).tolist()
    [2.0, 4.0, 0.0, 4.0]
    >>> dx.segment_reduce(x, [1, 0, 1, 0], func="mean").tolist()
    [3.0, 2.0]
    """
    if func not in _FUNCTIONS:
        raise ValueError(f"segment_reduce: func={func!r} is none of {', '.join(_FUNCTIONS)}")
    if mode not in ("raise", "drop"):
        raise ValueError(f"segment_reduce: mode={mode!r} is none of raise, drop")
    if isinstance(labels, list | tuple | range):
        labels = np.asarray(labels) if len(labels) else np.zeros(0, np.intp)
    operands = unbox("segment_reduce", (x, labels))
    node, codes = operands.nodes
    if type(node) is not Expr or type(codes) is not Expr or not node.ndim:
        raise ValueError(f"segment_reduce: the array needs an axis, and labels for it: {shown(labels)} have none")
    axis = normalize_axis(axis, node.ndim)
    if codes.dtype.kind not in "iu":
        raise TypeError(f"segment_reduce: labels={shown(labels)} must be integers, not {codes.dtype}")
    if codes.shape != (node.shape[axis],):
        raise ValueError(
            f"segment_reduce: labels of shape {codes.shape} for axis {axis} of {node.shape[axis]} elements; one each"
        )
    if num_segments is None:
        n = _largest(labels, codes) + 1
    else:
        n = integer(num_segments, "num_segments")
        if n < 0:
            raise ValueError(f"segment_reduce: num_segments={n} is negative")
    front = moveaxis(node, axis, 0)
    rest = [f"a{i}" for i in range(1, node.ndim)]
    rule = " ".join(["i", *rest]) + ", i -> " + " ".join(["s", *rest]) + f" | s: new({n})"
    dtype = _dtype(func, node.dtype)
    op = SEGMENT_REDUCE
    if mode == "raise" and isinstance(labels, np.ndarray):
        _check_labels(labels, n)
    elif mode == "raise":
        op = SEGMENT_REDUCE_ALL
    made = bind(op, (front, codes), (n, *front.shape[1:]), dtype, (rule, func, n, ddof))
    # Boxed first, which is when what may fail is computed: the view of it could be computed any time.
    boxed = operands.box(made)
    return boxed if axis == 0 else moveaxis(boxed, 0, axis)


def _check_labels(labels: HostArray, n: int) -> None:
    outside = (labels < 0) | (labels >= n)
    if outside.any():
        bad = int(labels[outside][0])
        raise IndexError(f"segment_reduce: label {bad} is none of {n} segments; mode='drop' leaves such elements out")


def _largest(labels: Any, codes: Expr) -> int:
    if not codes.size:
        return -1
    if isinstance(labels, np.ndarray):
        return max(-1, int(np.max(labels)))
    return max(-1, int(asked("segment_reduce", reductions.max(codes))[0]))


@lru_cache(maxsize=1024)
def _dtype(func: str, dtype: DType) -> DType:
    if func in ("first", "last"):
        return dtype
    if func == "count":
        return np.dtype(np.intp)
    if func in ("max", "min") and dtype.kind == "c":
        raise TypeError(f"segment_reduce: func={func!r} needs an order, which {dtype} has not")
    return as_dtype(getattr(np, func)(np.ones(1, dtype)).dtype)


def segment_sum(
    x: Array, /, labels: Any, num_segments: int | None = None, *, axis: int = 0, mode: str = "raise"
) -> Array:
    """Return the sum of each segment; see `segment_reduce`.

    >>> import distarray as dx
    >>> dx.segment_sum(dx.arange(6).reshape(2, 3), [0, 2, 0], axis=1).tolist()
    [[2, 0, 1], [8, 0, 4]]
    """
    return segment_reduce(x, labels, num_segments, axis=axis, func="sum", mode=mode)


def segment_prod(
    x: Array, /, labels: Any, num_segments: int | None = None, *, axis: int = 0, mode: str = "raise"
) -> Array:
    """Return the product of each segment; see `segment_reduce`."""
    return segment_reduce(x, labels, num_segments, axis=axis, func="prod", mode=mode)


def segment_max(
    x: Array, /, labels: Any, num_segments: int | None = None, *, axis: int = 0, mode: str = "raise"
) -> Array:
    """Return the largest element of each segment; see `segment_reduce`."""
    return segment_reduce(x, labels, num_segments, axis=axis, func="max", mode=mode)


def segment_min(
    x: Array, /, labels: Any, num_segments: int | None = None, *, axis: int = 0, mode: str = "raise"
) -> Array:
    """Return the smallest element of each segment; see `segment_reduce`."""
    return segment_reduce(x, labels, num_segments, axis=axis, func="min", mode=mode)


def segment_mean(
    x: Array, /, labels: Any, num_segments: int | None = None, *, axis: int = 0, mode: str = "raise"
) -> Array:
    """Return the mean of each segment; see `segment_reduce`."""
    return segment_reduce(x, labels, num_segments, axis=axis, func="mean", mode=mode)
