"""``pad``: more elements before and after an array along its axes, in all of numpy's modes.

Constants are a frame that an array is written into. Else, axis after axis, it becomes a join of what comes before,
itself and what comes after: views of its own elements (`_MIRRORED`), or what is computed of the elements at its borders
(``linear_ramp`` and `_STATISTICS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from sys import maxsize
from typing import Any

import numpy as np

from distarray.arguments import choice, host_array, normalize_axes, shown
from distarray.dtypes import as_dtype
from distarray.errors import NotSupportedError
from distarray.expr.affine import Affine
from distarray.expr.expr import Expr
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise, reductions
from distarray.ops.creation import constant, fill_value_of
from distarray.ops.families import Array, by_numpy, one_array
from distarray.ops.joining import joined, put_together
from distarray.ops.lenses import box_lens
from distarray.ops.manipulation import broadcast_to, sliced
from distarray.ops.quantiles import median
from distarray.types import DType, HostArray

#: What is put beside an array, of the elements next to its border.
_STATISTICS: Mapping[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "mean": reductions.mean,
    "median": median,
    "minimum": reductions.min,
}
#: Modes that repeat elements, and whether these are mirrored.
_MIRRORED = {"edge": False, "wrap": False, "reflect": True, "symmetric": True}
#: What each mode may be told.
_OPTIONS = {
    "constant": {"constant_values"},
    "empty": set[str](),
    "linear_ramp": {"end_values"},
    **{mode: {"reflect_type"} if mirrors else set[str]() for mode, mirrors in _MIRRORED.items()},
    **{mode: {"stat_length"} for mode in _STATISTICS},
}


def _padded_nbytes(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> int:
    """Return the bytes of a padded array; of one in whose border something is computed more than any that are computed
    at the call.
    """
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        return maxsize
    most = 2 * int(np.max(pad_width))
    return int(array.itemsize * math.prod([n + most for n in array.shape]))


@by_numpy(np.pad, _padded_nbytes)
@side_by_side
def pad(array: Array, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    """Return `array` with more elements before and after it along each axis.

    Parameters
    ----------
    pad_width
        ``(before, after)`` for each axis, or one pair or number for all, or a mapping from axes to them.
    mode
        ``constant``, ``edge``, ``empty``, ``linear_ramp``, ``maximum``, ``mean``, ``median``, ``minimum``, ``reflect``,
        ``symmetric`` or ``wrap``.
    **options
        As `pad_width`: ``constant_values``; ``end_values``, what a ramp ends with; ``stat_length``, the number of
        elements at the border that a statistic is of, all by default. For mirrors, ``reflect_type``: ``"even"``, or
        ``"odd"`` for twice the element at the border less the mirrored ones.
    """
    node, box = one_array("pad", array)
    if callable(mode):
        raise NotSupportedError("pad: mode is a function, which no task calls; concatenate the borders instead")
    if not isinstance(mode, str):
        raise ValueError(f"mode={shown(mode)} is not supported; it must be one of {', '.join(_OPTIONS)}")
    known = _OPTIONS[choice(mode, _OPTIONS, "mode")]
    if not known.issuperset(options):
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {set(options) - known}")
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * node.ndim
        for key, width in pad_width.items():
            for a in normalize_axes(key, node.ndim):
                pairs[a] = (width, width) if isinstance(width, int) else tuple(width)
        pad_width = pairs
    widths = _counts("pad_width", pad_width, node.ndim)
    told = _told(mode, options, node.ndim, node.dtype)
    if mode in ("constant", "empty"):
        return box(_framed(node, widths.tolist(), told if mode == "constant" else None))
    borders = _statistics if mode in _STATISTICS else _ramps if mode == "linear_ramp" else _mirrors
    for axis, (low, high) in enumerate(widths.tolist()):
        if not low and not high:
            continue
        if not node.shape[axis]:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        before, after = borders(node, axis, (low, high), mode, told if isinstance(told, str) else told[axis])
        node = joined([*before, node, *after], axis, node.dtype, node.env)
    return box(node)


def _told(mode: str, options: Mapping[str, Any], ndim: int, dtype: DType) -> Any:
    """Return what the options say of an array of `dtype`: a pair for each axis, or the name of a kind of mirror."""
    if mode in _MIRRORED:
        return choice(options.get("reflect_type", "even"), ("even", "odd"), "reflect_type")
    if mode in _STATISTICS:
        given = options.get("stat_length")
        if given is None:
            return [(None, None)] * ndim
        lengths = _counts("stat_length", given, ndim)
        if mode in ("maximum", "minimum") and not lengths.all():
            raise ValueError(f"stat_length of 0 yields no value for padding: stat_length={shown(given)}")
        return lengths.tolist()
    name = "end_values" if mode == "linear_ramp" else "constant_values"
    values = _pairs(name, options.get(name, 0), ndim)
    kinds = {values.dtype.kind, dtype.kind}
    if mode == "constant" and ((kinds <= {*"fiu"} and dtype.kind in "iu") or kinds & {*"mM"}):
        for value in values.ravel():
            np.empty((), dtype)[()] = value  # numpy's errors of what is no integer, or no date, of that dtype
    return values


def _counts(name: str, value: Any, ndim: int) -> HostArray:
    if (host_array(value, name, kinds="iu") < 0).any():
        raise ValueError(f"index can't contain negative values: {name}={shown(value)}")
    return _pairs(name, value, ndim, "iu")


def _pairs(name: str, value: Any, ndim: int, kinds: str = "biufcmM") -> HostArray:
    array = host_array(value, name, kinds=kinds)
    try:
        return np.broadcast_to(array, (ndim, 2))
    except ValueError:
        raise ValueError(
            f"operands could not be broadcast together: {name} of shape {array.shape} for {ndim} axes"
        ) from None


# ------------------------------------------------------------------------------------------------- the borders
#
# What comes before and after an array along an axis: of the array, the axis, the two widths, the mode and its options.


def _framed(node: Expr, widths: Sequence[tuple[int, int]], values: HostArray | None) -> Expr:
    """Return an array with a value before and after it along each axis, or None for any; later axes have the corners.

    It is written once, unlike a join along one axis after the other.
    """
    if not any(low or high for low, high in widths):
        return node
    shape = tuple([low + n + high for n, (low, high) in zip(node.shape, widths, strict=True)])

    def box(axis: int, start: int, length: int) -> Affine:
        """Return what is along `axis` from `start` on: all of the axes before, the elements of `node` of the others."""
        starts = [0] * axis + [start] + [low for low, _ in widths[axis + 1 :]]
        return box_lens((*shape[:axis], length, *node.shape[axis + 1 :]), starts)

    pieces: list[tuple[Affine, Expr]] = []
    for axis, pair in enumerate(() if values is None else values):
        low, high = widths[axis]
        for start, width, value in zip((0, shape[axis] - high), (low, high), pair, strict=True):
            lens = box(axis, start, width)
            pieces.append((lens, constant(lens.shape, value, node.dtype, node.env)))
    inner = box_lens(node.shape, [low for low, _ in widths])
    return put_together([*pieces, (inner, node)], shape, node.dtype, node.env)


def _ramps(node: Expr, axis: int, widths: tuple[int, int], _mode: str, ends: Any) -> tuple[list[Expr], list[Expr]]:
    """Return numbers from the elements at the border to the values at the ends, which are reached."""
    exact = as_dtype(np.result_type(node.dtype, np.float64))
    made: list[list[Expr]] = []
    for width, end, at, back in zip(widths, ends, (0, node.shape[axis] - 1), (False, True)):
        if not width:
            made.append([])
            continue
        start = fill_value_of(end, exact).item()
        edge = elementwise.astype(sliced(node, axis, at, 1), exact, copy=False)
        steps = np.arange(width, dtype=np.float64)[:: -1 if back else 1]
        steps = steps.reshape([-1 if a == axis else 1 for a in range(node.ndim)])
        step = elementwise.divide(elementwise.subtract(edge, start), width)
        ramp = elementwise.add(elementwise.multiply(step, steps), start)
        made.append([elementwise.astype(elementwise.floor(ramp) if node.dtype.kind in "iu" else ramp, node.dtype)])
    return made[0], made[1]


def _statistics(
    node: Expr, axis: int, widths: tuple[int, int], mode: str, lengths: Any
) -> tuple[list[Expr], list[Expr]]:
    """Return a statistic of the elements next to each border, repeated."""
    n = node.shape[axis]
    made = []
    for width, length, is_last in zip(widths, lengths, (False, True)):
        length = n if length is None or length > n else length
        part = sliced(node, axis, n - length if is_last else 0, length)
        value = _STATISTICS[mode](part, axis=axis, keepdims=True)
        if np.issubdtype(node.dtype, np.integer) and value.dtype.kind in "fm":  # time spans, which are not rounded
            value = elementwise.round(value)
        value = elementwise.astype(value, node.dtype, copy=False)
        made.append([broadcast_to(value, (*node.shape[:axis], width, *node.shape[axis + 1 :]))] if width else [])
    return made[0], made[1]


def _mirrors(node: Expr, axis: int, widths: tuple[int, int], mode: str, kind: Any) -> tuple[list[Expr], list[Expr]]:
    (low, high), n = widths, node.shape[axis]
    if _MIRRORED[mode] and kind == "odd" and n > 1:
        return _odd_mirrors(node, axis, widths, mode)
    before = _runs(node, axis, _mirror(mode, np.arange(-low, 0), n))
    return before, _runs(node, axis, _mirror(mode, np.arange(n, n + high), n))


def _odd_mirrors(node: Expr, axis: int, widths: tuple[int, int], mode: str) -> tuple[list[Expr], list[Expr]]:
    """Return twice the element at the border less the mirrored elements: period after period, each from the one before
    it.
    """
    made: list[list[Expr]] = []
    skipped = 1 if mode == "reflect" else 0
    for width, is_last in zip(widths, (False, True)):
        n = node.shape[axis]
        parts: list[Expr] = []
        period, left = node, width
        while left:
            count = min(left, n - skipped)
            border = sliced(period, axis, n - 1 if is_last else 0, 1)
            first = n - 1 - skipped if is_last else skipped + count - 1
            mirrored = sliced(period, axis, first, count, -1)
            part = elementwise.subtract(elementwise.multiply(border, 2), mirrored)
            part = elementwise.astype(part, node.dtype, copy=False)
            parts.append(part)
            left -= count
            if left:  # the next border is the last element of this part
                ends = [border, part] if is_last else [part, border]
                period = joined(ends, axis, node.dtype, node.env) if skipped else part
        made.append(parts if is_last else parts[::-1])
    return made[0], made[1]


def _mirror(mode: str, index: HostArray, n: int) -> HostArray:
    """Return the elements 0 .. n-1 that stand at `index` outside of them."""
    if mode == "edge" or (mode == "reflect" and n == 1):
        return np.clip(index, 0, n - 1)
    if mode == "wrap":
        return index % n
    period, last = (2 * n, 2 * n - 1) if mode == "symmetric" else (2 * n - 2, 2 * n - 2)
    folded = index % period
    return np.minimum(folded, last - folded)


def _runs(node: Expr, axis: int, index: HostArray) -> list[Expr]:
    """Return the elements at `index` along `axis`, as one view for each run of constant step."""
    runs = []
    i = 0
    while i < len(index):
        step = int(index[i + 1] - index[i]) if i + 1 < len(index) else 1
        breaks = np.flatnonzero(np.diff(index[i:]) != step)
        length = int(breaks[0]) + 1 if len(breaks) else len(index) - i
        runs.append(sliced(node, axis, int(index[i]), length, step))
        i += length
    return runs
