"""Arrays put together of pieces, and cut out of larger ones: nested blocks, functions by parts, trimmed borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.arguments import naming, normalize_axes, sequence
from distarray.array.array import DistArray
from distarray.composed.creation import zeros_like
from distarray.composed.views import as_distarray, beside
from distarray.expr.side_by_side import side_by_side
from distarray.ops import joining
from distarray.ops.families import by_numpy
from distarray.types import AxesLike

# ------------------------------------------------------------------------------------------------ nested lists


@by_numpy(np.block)
@side_by_side
def block(arrays: Any) -> DistArray:
    """Return the array that nested lists of blocks make: the innermost ones side by side along the last axis."""
    depth, ndim = _depth(arrays, ())
    if not depth:
        return as_distarray(arrays).copy()
    return joining.blocks(arrays, depth, max(depth, ndim))


def _depth(arrays: Any, at: tuple[int, ...]) -> tuple[int, int]:
    """Return how deep lists are nested, and the most axes of any block."""
    if isinstance(arrays, tuple):
        raise TypeError(
            f"{_place(at)} is a tuple. Only lists can be used to arrange blocks, and np.block does not allow implicit "
            "conversion from tuple to ndarray."
        )
    if not isinstance(arrays, list):
        return 0, np.ndim(arrays)
    if not arrays:
        raise ValueError(f"List at {_place(at)} cannot be empty")
    inner = [_depth(a, (*at, i)) for i, a in enumerate(arrays)]
    first = inner[0][0]
    for i, (depth, _) in enumerate(inner):
        if depth != first:
            raise ValueError(
                f"List depths are mismatched. First element was at depth {len(at) + 1 + first}, but there is an "
                f"element at depth {len(at) + 1 + depth} ({_place((*at, i))})"
            )
    return first + 1, max(ndim for _, ndim in inner)


def _place(at: tuple[int, ...]) -> str:
    return "arrays" + "".join(f"[{i}]" for i in at)


# -------------------------------------------------------------------------------------------------- by parts


@side_by_side
def piecewise(x: Any, condlist: Any, funclist: Sequence[Callable[..., Any] | Any], *args: Any, **kw: Any) -> DistArray:
    """Return `x` with a function of its elements, or a value, for each condition; zero where none is true.

    Parameters
    ----------
    condlist
        Masks of the shape of `x`; the last one that is true counts.
    funclist
        As many functions or values, or one more for where none is true. A function gets a vector of the elements,
        whose number is computed, and is not called if there are none.
    args, kw
        Passed to the functions.
    """
    x = as_distarray(x)
    is_one = np.isscalar(condlist) or getattr(condlist, "ndim", 1) == 0
    if not isinstance(condlist, DistArray) and not is_one:
        condlist = sequence(condlist, "condlist", "masks")
        if not condlist:
            raise IndexError("condlist is empty: at least one mask is needed")
    if not isinstance(condlist, DistArray):
        with naming(condlist=condlist):
            np.ndim(condlist[0] if isinstance(condlist, tuple) else condlist)
    funclist = sequence(funclist, "funclist", "functions or values")
    if is_one or (np.ndim(condlist[0]) == 0 and x.ndim):
        condlist = [condlist]
    masks = [beside(x, c).astype(bool, copy=False) for c in condlist]
    n = len(masks)
    if len(funclist) == n + 1:
        some = masks[0]
        for mask in masks[1:]:
            some = some | mask
        masks.append(~some)
    elif len(funclist) != n:
        raise ValueError(
            f"with {n} condition(s) in condlist, either {n} or {n + 1} functions are expected, not the "
            f"{len(funclist)} of funclist"
        )
    y: DistArray = zeros_like(x)
    for mask, function in zip(masks, funclist, strict=True):
        if not callable(function):
            with naming(funclist=function):
                y[mask] = function
            continue
        values = x[mask]
        if values.size:
            y[mask] = function(values, *args, **kw)
    return y


# --------------------------------------------------------------------------------------------------- borders


def trim_zeros(filt: Any, trim: str = "fb", axis: AxesLike = None) -> DistArray:
    """Return `filt` without zeros at its borders: a view. Computes where they end.

    Parameters
    ----------
    trim
        ``f``: in front; ``b``: at the back; both by default.
    axis
        Of which axes; all by default.
    """
    x = as_distarray(filt)
    sides = trim.lower()
    if sides not in {"fb", "bf", "f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = normalize_axes(axis, x.ndim)
    if not axes:
        return x
    counts = x.astype(bool)
    index: list[slice] = [slice(None)] * x.ndim
    for a in axes:
        others = tuple(i for i in range(x.ndim) if i != a)
        seen = counts.any(axis=others) if others else counts
        start, stop = _ends(seen)
        index[a] = slice(start if "f" in sides or start == stop else None, stop if "b" in sides else None)
        if start == stop:
            # nothing but zeros: nothing is left
            return x[tuple(slice(0, 0) if i in axes else slice(None) for i in range(x.ndim))]
    return x[tuple(index)]


def _ends(seen: DistArray) -> tuple[int, int]:
    """Return where the first true element stands, and the place after the last one; the same if there is none."""
    n = seen.size
    if not n or not bool(seen.any()):
        return 0, 0
    return int(seen.argmax()), n - int(seen[::-1].argmax())
