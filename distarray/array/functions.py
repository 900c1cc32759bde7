"""numpy's functions that are compositions of others, or that write into their argument.

Each is a few lines of numpy-style code on DistArrays: what is deferred, planned and fused is decided below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.creation import empty_like, zeros
from distarray.array.indexing import flatnonzero
from distarray.array.views import as_distarray, moveaxis
from distarray.errors import NotSupportedError
from distarray.expr.bind import normalize_axis
from distarray.ops import elementwise, manipulation, reductions

__all__ = [
    "allclose", "array_equal", "array_equiv", "choose", "copyto", "delete", "fill_diagonal", "insert", "isscalar",
    "iterable", "ndim", "place", "put", "putmask", "resize", "select", "shape", "size",
]  # fmt: skip


# ------------------------------------------------------------------------------------------------ questions


def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array, or of what makes one."""
    return a.shape if isinstance(a, DistArray) else np.shape(a)


def ndim(a: Any) -> int:
    """The number of axes."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, or the extent of an axis."""
    own = shape(a)
    return int(np.prod(own, dtype=object)) if axis is None else own[axis]


def isscalar(element: Any) -> bool:
    """Whether `element` is a number of Python or numpy."""
    return np.isscalar(element)


def iterable(y: Any) -> bool:
    """Whether one can iterate over `y`."""
    return bool(y.ndim) if isinstance(y, DistArray) else np.iterable(y)


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close: `isclose`. Computes."""
    return bool(reductions.all(elementwise.isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two arrays have one shape and equal elements. Computes."""
    x, y = as_distarray(a1), as_distarray(a2)
    if x.shape != y.shape:
        return False
    same = x == y
    if equal_nan and x.dtype.kind in "fcmM" and y.dtype.kind in "fcmM":
        same = same | ((x != x) & (y != y))
    return bool(same.all())


def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether two arrays broadcast to one shape and have equal elements there. Computes."""
    x, y = as_distarray(a1), as_distarray(a2)
    try:
        same = x == y
    except ValueError:
        return False
    return bool(same.all())


# ----------------------------------------------------------------------------------------------- in place


def copyto(dst: DistArray, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Copy `src` into `dst`, where `where` is true."""
    given = src.dtype if hasattr(src, "dtype") else np.asarray(src).dtype
    if not (isinstance(src, bool | int | float | complex) or np.can_cast(given, dst.dtype, casting)):
        raise TypeError(f"Cannot cast array data from {given!r} to {dst.dtype!r} according to the rule {casting!r}")
    if where is True:
        dst[...] = src
    else:
        dst[...] = elementwise.where(where, src, dst)


def putmask(a: DistArray, mask: Any, values: Any) -> None:
    """Where `mask` is true, the element of `values` at the same flat position, repeated as needed."""
    given = as_distarray(values)
    if given.size == 0:
        return
    if given.size > 1:
        n = a.size
        repeats = -(-n // given.size)
        given = manipulation.tile(given.ravel(), repeats)[:n].reshape(a.shape)
    else:
        given = given.reshape(())
    a[...] = elementwise.where(as_distarray(mask).reshape(a.shape), given, a)


def place(arr: DistArray, mask: Any, vals: Any) -> None:
    """The first elements of `vals`, repeated as needed, where `mask` is true. Computes the mask."""
    at = flatnonzero(mask)
    given = as_distarray(vals).ravel()
    if not at.size:
        return
    if not given.size:
        raise ValueError("Cannot insert from an empty array!")
    put(arr, at, manipulation.tile(given, -(-at.size // given.size))[: at.size])


def put(a: DistArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write at flat positions."""
    if mode != "raise":
        raise NotSupportedError(f"put: mode={mode!r} is not supported; wrap or clip the indices")
    at = as_distarray(ind).ravel() if isinstance(ind, DistArray) else np.asarray(ind).ravel()
    given = as_distarray(v).ravel()
    if not at.size:
        return
    if given.size != 1:
        given = manipulation.tile(given, -(-at.size // given.size))[: at.size]
    flat = a.ravel()
    flat[at] = given
    if flat._base is not a._base:
        a[...] = flat.reshape(a.shape)


def fill_diagonal(a: DistArray, val: Any, wrap: bool = False) -> None:
    """Write along the main diagonal, in place."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2:
        if len(set(a.shape)) > 1:
            raise ValueError("All dimensions of input must be of equal length")
        at = np.arange(a.shape[0])
        a[(at,) * a.ndim] = val
        return
    if wrap and a.shape[0] > a.shape[1] + 1:
        step = a.shape[1] + 1
        put(a, np.arange(0, a.size, step), val)
        return
    diagonal = a._view(manipulation.diagonal_lens(a.shape))
    diagonal[...] = val if np.ndim(val) == 0 else np.resize(np.asarray(val), diagonal.shape)


# ------------------------------------------------------------------------------------------- choice, order


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> DistArray:
    """For each element the first choice whose condition is true."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = elementwise.where(condition, choice, result)
    return result  # type: ignore[no-any-return]  # boxed


def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> DistArray:
    """For each element the choice of that number."""
    x = as_distarray(a)
    n = len(choices)
    if mode == "wrap":
        x = x % n
    elif mode == "clip":
        x = x.clip(0, n - 1)
    elif bool(((x < 0) | (x >= n)).any()):
        raise ValueError("invalid entry in choice array")
    return select([x == i for i in range(n)], choices, 0)


def delete(arr: Any, obj: Any, axis: int | None = None) -> DistArray:
    """A copy without the elements at `obj` along `axis`; of the flattened array by default."""
    x, axis = _along(arr, axis)
    n = x.shape[axis]
    kept = np.ones(n, bool)
    at = np.asarray(obj) if not isinstance(obj, slice) else obj
    if isinstance(at, np.ndarray) and at.dtype.kind != "b" and at.size == 0:
        at = at.astype(np.intp)
    if isinstance(at, np.ndarray) and at.size and at.dtype.kind in "iu" and (at.min() < -n or at.max() >= n):
        bad = at[(at < -n) | (at >= n)].flat[0]
        raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {n}")
    kept[at] = False
    return x[(slice(None),) * axis + (np.flatnonzero(kept),)]


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> DistArray:
    """A copy with `values` before the positions `obj` along `axis`; of the flattened array by default."""
    x, axis = _along(arr, axis)
    n = x.shape[axis]
    given = as_distarray(values).astype(x.dtype, copy=False)
    given = given.reshape((1,) * (x.ndim - given.ndim) + given.shape)
    count = len(range(n)[obj]) if isinstance(obj, slice) else int(np.size(obj))
    if not isinstance(obj, slice) and count == 1:
        if np.ndim(obj) == 0:
            # numpy: for one position, the first axis of the values is the axis of insertion
            given = moveaxis(given, 0, axis)
        count = given.shape[axis]
    # numpy finds the order, on positions: the k-th value is marked -1 - k
    marks = np.insert(np.arange(n), obj, -1 - np.arange(count))
    low = (slice(None),) * axis
    result = empty_like(x, shape=(*x.shape[:axis], len(marks), *x.shape[axis + 1 :]))
    result[(*low, np.flatnonzero(marks >= 0))] = x
    places = np.argsort(-1 - marks[marks < 0])
    result[(*low, np.flatnonzero(marks < 0)[places])] = given
    return result


def _along(arr: Any, axis: int | None) -> tuple[DistArray, int]:
    x = as_distarray(arr)
    if axis is None:
        return x.ravel(), 0
    return x, normalize_axis(axis, x.ndim)


def resize(a: Any, new_shape: Any) -> DistArray:
    """An array of a new shape, with the elements repeated as needed."""
    x = as_distarray(a).ravel()
    new = manipulation.parse_shape(new_shape)
    n = int(np.prod(new, dtype=object))
    if not x.size or not n:
        return zeros(new, x.dtype, team=x.team, device=x.device)
    repeated = x if n <= x.size else manipulation.tile(x, -(-n // x.size))
    return repeated[:n].reshape(new)  # type: ignore[no-any-return]  # boxed as x is
