"""Sets: the distinct elements of an array, and membership.

The elements are looked at where they are, tile by tile, and only the distinct ones come to this process; the shape of
the results depends on their number (B-9).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distarray import config
from distarray.array.array import DistArray
from distarray.array.conversion import iter_blocks
from distarray.array.views import as_distarray
from distarray.expr.expr import source
from distarray.types import HostArray

__all__ = [
    "UniqueAllResult", "UniqueCountsResult", "UniqueInverseResult", "in1d", "intersect1d", "isin", "setdiff1d",
    "setxor1d", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


class UniqueAllResult(NamedTuple):
    """What ``unique_all`` returns."""

    values: DistArray
    indices: DistArray
    inverse_indices: DistArray
    counts: DistArray


class UniqueCountsResult(NamedTuple):
    """What ``unique_counts`` returns."""

    values: DistArray
    counts: DistArray


class UniqueInverseResult(NamedTuple):
    """What ``unique_inverse`` returns."""

    values: DistArray
    inverse_indices: DistArray


def _check(name: str) -> None:
    if config.get("data-dependent") == "raise":
        raise ValueError(
            f"{name}: the shape of the result depends on data, and the option data-dependent is 'raise'; set it to "
            "'counts'"
        )


def _boxed(x: DistArray, host: HostArray) -> DistArray:
    return x._on(source(host, x._env))


def _distinct(x: DistArray, *, equal_nan: bool) -> tuple[HostArray, HostArray]:
    """Distinct values and how often each stands, from those of each block."""
    values: list[HostArray] = []
    counts: list[HostArray] = []
    for block in iter_blocks(x):
        found, many = np.unique(np.asarray(block.values), return_counts=True, equal_nan=equal_nan)
        values.append(found)
        counts.append(many)
    together = np.concatenate(values) if values else np.empty(0, x.dtype)
    merged, inverse = np.unique(together, return_inverse=True, equal_nan=equal_nan)
    total = np.zeros(merged.shape, np.intp)
    np.add.at(total, inverse.reshape(-1), np.concatenate(counts) if counts else np.empty(0, np.intp))
    return merged, total


def unique_values(x: Any, /) -> DistArray:
    """The distinct elements, in order; every nan is distinct."""
    _check("unique_values")
    x = as_distarray(x)
    return _boxed(x, _distinct(x, equal_nan=False)[0])


def unique_counts(x: Any, /) -> UniqueCountsResult:
    """The distinct elements, and how often each stands; every nan is distinct."""
    _check("unique_counts")
    x = as_distarray(x)
    values, counts = _distinct(x, equal_nan=False)
    return UniqueCountsResult(_boxed(x, values), _boxed(x, counts))


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    """The distinct elements, and which of them stands at each position."""
    found = unique_all(x)
    return UniqueInverseResult(found.values, found.inverse_indices)


def unique_all(x: Any, /) -> UniqueAllResult:
    """The distinct elements, where each stands first, which stands at each position, and how often each stands."""
    _check("unique_all")
    x = as_distarray(x)
    return UniqueAllResult(*(_boxed(x, part) for part in np.unique_all(x._host())))


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:  # as numpy: an array, or a tuple of arrays
    """numpy's ``unique``: the distinct elements in order, and what else is asked for."""
    _check("unique")
    x = as_distarray(ar)
    if axis is None and not (return_index or return_inverse):
        values, counts = _distinct(x, equal_nan=equal_nan)
        return (_boxed(x, values), _boxed(x, counts)) if return_counts else _boxed(x, values)
    found: Any = np.unique(  # type: ignore[call-overload]  # the overloads want literal flags
        x._host(), return_index, return_inverse, return_counts, axis, equal_nan=equal_nan
    )
    if not isinstance(found, tuple):
        return _boxed(x, found)
    return tuple(_boxed(x, part) for part in found)


def isin(x1: Any, x2: Any, /, *, assume_unique: bool = False, invert: bool = False) -> DistArray:
    """Where the elements of `x1` are among those of `x2`, whose distinct elements come to this process."""
    from distarray.ops.elementwise import equal, logical_not, logical_or
    from distarray.ops.sorting import searchsorted

    x = as_distarray(x1)
    allowed = _distinct(as_distarray(x2), equal_nan=False)[0]
    common = np.result_type(x.dtype, allowed.dtype)
    allowed = allowed.astype(common)
    allowed = allowed[allowed == allowed]  # nan is in nothing
    if not allowed.size:
        found: Any = equal(x, x) & False
    elif allowed.size <= 8:
        found = equal(x, allowed[0])
        for value in allowed[1:]:
            found = logical_or(found, equal(x, value))
    else:
        cast = x.astype(common, copy=False)
        table = _boxed(x, allowed)
        at = searchsorted(table, cast.ravel()).clip(0, allowed.size - 1)
        found = equal(table[at].reshape(x.shape), cast)
    return logical_not(found) if invert else found  # type: ignore[no-any-return]  # boxed as x is


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> DistArray:
    """`isin` of a flattened array."""
    return isin(as_distarray(ar1).ravel(), ar2, assume_unique=assume_unique, invert=invert)


def _pair(name: str, a: Any, b: Any) -> tuple[DistArray, HostArray, HostArray]:
    _check(name)
    x, y = as_distarray(a), as_distarray(b)
    return x, _distinct(x, equal_nan=True)[0], _distinct(y, equal_nan=True)[0]


def union1d(ar1: Any, ar2: Any) -> DistArray:
    """The distinct elements of two arrays."""
    x, a, b = _pair("union1d", ar1, ar2)
    return _boxed(x, np.union1d(a, b))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """The distinct elements that two arrays have in common."""
    x, a, b = _pair("intersect1d", ar1, ar2)
    return _boxed(x, np.intersect1d(a, b))


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """The distinct elements of the first array that are not in the second."""
    x, a, b = _pair("setdiff1d", ar1, ar2)
    return _boxed(x, np.setdiff1d(a, b))


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """The distinct elements that are in one of two arrays only."""
    x, a, b = _pair("setxor1d", ar1, ar2)
    return _boxed(x, np.setxor1d(a, b))
