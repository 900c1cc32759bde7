"""Positions in arrays: of diagonals and triangles, in grids, flat ones and those along each axis.

What follows from a shape alone are host arrays, since they are indices; what is made of arrays is an array.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from distarray.arguments import index_mode, integer, memory_order, parse_shape, sequence, shown
from distarray.array.array import DistArray
from distarray.composed.blockwise import map_blocks
from distarray.composed.conversion import asarray
from distarray.composed.functions import ndim, shape
from distarray.composed.nonzero import nonzero
from distarray.composed.views import as_distarray
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise
from distarray.ops.families import by_numpy
from distarray.types import HostArray

Positions: TypeAlias = tuple[HostArray, ...]


def tril_indices(n: int, k: int = 0, m: int | None = None) -> Positions:
    """Return the positions on and below the `k`-th diagonal of a matrix: host arrays, since they are indices."""
    return np.tril_indices(_number(n, "n"), _number(k, "k"), None if m is None else _number(m, "m"))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> Positions:
    """Return the positions on and above the `k`-th diagonal of a matrix: host arrays, since they are indices."""
    return np.triu_indices(_number(n, "n"), _number(k, "k"), None if m is None else _number(m, "m"))


def tril_indices_from(arr: Any, k: int = 0) -> Positions:
    """Return `tril_indices` for the shape of a matrix."""
    rows, columns = _matrix_shape(arr)
    return np.tril_indices(rows, _number(k, "k"), columns)


def triu_indices_from(arr: Any, k: int = 0) -> Positions:
    """Return `triu_indices` for the shape of a matrix."""
    rows, columns = _matrix_shape(arr)
    return np.triu_indices(rows, _number(k, "k"), columns)


def _number(value: Any, name: str) -> Any:
    """Return an integer, or the number with a fraction that numpy makes one of in its own way."""
    return value if isinstance(value, float) else integer(value, name)


def _matrix_shape(arr: Any) -> tuple[int, int]:
    if ndim(arr) != 2:
        raise ValueError("input array must be 2-d")
    rows, columns = shape(arr)
    return rows, columns


def diag_indices(n: int, ndim: int = 2) -> Positions:
    """Return the positions of the main diagonal of an array of `ndim` axes of extent `n`: host arrays, since they are
    indices.
    """
    return np.diag_indices(_number(n, "n"), integer(ndim, "ndim"))


def diag_indices_from(arr: Any) -> Positions:
    """Return `diag_indices` for the shape of an array with equal extents."""
    own = shape(arr)
    if len(own) < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(own)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    return np.diag_indices(own[0], len(own))


@side_by_side
def ix_(*args: Any) -> tuple[Any, ...]:
    """Return an array of indices for each axis, of shapes that broadcast: together they index a grid.

    A mask stands for the positions where it is true; their number is computed at the call.
    """
    made = []
    for axis, given in enumerate(args):
        at = given if isinstance(given, DistArray) else np.asarray(given)
        if isinstance(at, np.ndarray) and at.size == 0:
            at = at.astype(np.intp)
        if at.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if at.dtype.kind == "b":
            (at,) = nonzero(at) if isinstance(at, DistArray) else at.nonzero()
        at = asarray(at)  # whatever it was given as, it is an array of ours
        made.append(at.reshape((1,) * axis + (at.size,) + (1,) * (len(args) - axis - 1)))
    return tuple(made)


@by_numpy(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """Return, for positions in the flattened array, the positions along each axis of an array of `shape`.

    Whether they are inside is computed at the call.
    """
    if not isinstance(indices, DistArray):
        return np.unravel_index(indices, shape, order)  # type: ignore[call-overload]
    _integers(indices)
    dims = parse_shape(shape)
    order = memory_order(order, ("C", "F"))
    result: list[Any] = []
    rest: Any = indices.astype(np.intp, copy=False)
    if indices.size:
        rest = map_blocks(_are_inside, rest, dims, dtype=np.intp)
    for extent in dims if order == "F" else reversed(dims):
        result.append(rest % extent)
        rest = rest // extent
    return tuple(result if order == "F" else reversed(result))


def _are_inside(positions: Any, dims: tuple[int, ...]) -> Any:
    n = math.prod(dims)
    # Elsewhere than in numpy's arrays the answer would have to be waited for.
    if isinstance(positions, np.ndarray) and ((positions < 0) | (positions >= n)).any():
        raise ValueError(f"index is out of bounds for array of shape {dims}, with size {n}")
    return positions


@by_numpy(np.ravel_multi_index)
@side_by_side
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """Return the flat positions that positions along each axis mean.

    Parameters
    ----------
    multi_index
        One array of integers for each axis; they broadcast.
    dims
        Extents of the axes.
    mode
        What is done with positions outside, for all axes or each: ``raise`` (computes whether there are any),
        ``wrap``, ``clip``.
    order
        ``"C"``: the last axis runs fastest; ``"F"``: the first one.
    """
    parts = list(sequence(multi_index, "multi_index", "arrays"))
    if not any(isinstance(part, DistArray) for part in parts):
        return np.ravel_multi_index(tuple(parts), dims, mode, order)  # type: ignore[call-overload]
    extents = parse_shape(dims, "dims")
    if 0 in extents and all(np.size(part) for part in parts):
        raise ValueError(f"cannot unravel if shape has zero entries (is empty): dims={shown(dims)}")
    if len(parts) != len(extents):
        raise ValueError(
            f"parameter multi_index must be a sequence of length {len(extents)}, one array for each axis of dims, not "
            f"{len(parts)}"
        )
    is_one = mode is None or isinstance(mode, str | int | np.integer)
    modes = [index_mode(each) for each in ((mode,) * len(parts) if is_one else sequence(mode, "mode", "names"))]
    if len(modes) != len(parts):
        raise TypeError(f"mode={shown(mode)} must be one name, or one for each of {len(parts)} axes")
    order = memory_order(order, ("C", "F"))
    inside = [_inside(_integers(p), n, m) for p, n, m in zip(map(as_distarray, parts), extents, modes, strict=True)]
    pairs = list(zip(inside, extents, strict=True))
    flat: Any = 0
    for at, n in reversed(pairs) if order == "F" else pairs:
        flat = at + flat * n
    return flat


def _integers(at: DistArray) -> DistArray:
    if at.dtype.kind not in "biu":
        raise TypeError("only int indices permitted")
    return at


def _inside(at: DistArray, n: int, mode: str) -> DistArray:
    at = at.astype(np.intp, copy=False)
    if mode == "wrap":
        return at % n
    if mode == "clip":
        return elementwise.clip(at, 0, n - 1)
    if at.size and bool(((at < 0) | (at >= n)).any()):
        raise ValueError(f"invalid entry in coordinates array: dims has {n}")
    return at
