"""Sets: the distinct elements of an array, membership, and what two sets have in common.

Results have the shape that the number of distinct elements gives them, which is computed at the call (B-9); everything
else stays deferred, and lies where the sorted elements do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distarray.arguments import normalize_axis
from distarray.array.array import DistArray
from distarray.composed.views import all_beside, as_distarray, beside, without_number
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise, joining, sets, sorting
from distarray.ops.families import by_numpy


class UniqueAllResult(NamedTuple):
    """A UniqueAllResult is what ``unique_all`` returns."""

    values: DistArray
    indices: DistArray
    inverse_indices: DistArray
    counts: DistArray


class UniqueCountsResult(NamedTuple):
    """A UniqueCountsResult is what ``unique_counts`` returns."""

    values: DistArray
    counts: DistArray


class UniqueInverseResult(NamedTuple):
    """A UniqueInverseResult is what ``unique_inverse`` returns."""

    values: DistArray
    inverse_indices: DistArray


def unique_values(x: Any, /) -> DistArray:
    """Return the distinct elements, in order; every nan is distinct."""
    return sets.distinct("unique_values", as_distarray(x))["values"]


def unique_counts(x: Any, /) -> UniqueCountsResult:
    """Return the distinct elements, and how often each stands; every nan is distinct."""
    found = sets.distinct("unique_counts", as_distarray(x), ("counts",))
    return UniqueCountsResult(found["values"], found["counts"])


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    """Return the distinct elements, and which of them stands at each position."""
    x = as_distarray(x)
    found = sets.distinct("unique_inverse", x, ("inverse",))
    return UniqueInverseResult(found["values"], found["inverse"].reshape(x.shape))


def unique_all(x: Any, /) -> UniqueAllResult:
    """Return the distinct elements, where each stands first, which stands at each position, and how often each
    stands.
    """
    x = as_distarray(x)
    found = sets.distinct("unique_all", x, sets.FACTS)
    return UniqueAllResult(found["values"], found["indices"], found["inverse"].reshape(x.shape), found["counts"])


@by_numpy(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:  # as numpy: an array, or a tuple of arrays
    """Return the distinct elements in order, and what else is asked for, as numpy's ``unique`` does.

    With an `axis` its slices are compared, which takes as many sorts as a slice has elements.
    """
    x = as_distarray(ar)
    if axis is not None:
        axis = normalize_axis(axis, x.ndim)
        if x.ndim == 1:
            axis = None  # its slices are its elements, of which all nan may be one
    facts = [fact for fact, asked in zip(sets.FACTS, (return_index, return_inverse, return_counts)) if asked]
    found = sets.distinct("unique", x, facts, axis=axis, equal_nan=bool(equal_nan))
    if return_inverse and axis is None:
        found["inverse"] = found["inverse"].reshape(x.shape)
    result = tuple([found[fact] for fact in ("values", *facts)])
    return result if facts else result[0]


@side_by_side
def isin(x1: Any, x2: Any, /, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> DistArray:
    """Return where the elements of `x1` are among those of `x2`. Nothing is computed; numpy's `kind` changes
    nothing, but there is a ``table`` of integers only.
    """
    if kind is not None and not (isinstance(kind, str) and kind in ("sort", "table")):
        raise ValueError(f"Invalid kind: {kind!r}. Please use None, 'sort' or 'table'.")
    if not isinstance(x1, DistArray) and not isinstance(x2, DistArray):
        x1 = as_distarray(x1)
    if kind == "table" and any(as_distarray(x).dtype.kind not in "biu" for x in (x1, x2)):
        raise ValueError(
            "The 'table' method is only supported for boolean or integer arrays. Please select 'sort' or None for kind."
        )
    return without_number(sets.isin(x1, x2, invert=invert))


@side_by_side
def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> DistArray:
    """Return `isin` of a flattened array."""
    return isin(all_beside(ar1, ar2)[0].ravel(), ar2, assume_unique=assume_unique, invert=invert)


def _flat(name: str, arrays: Sequence[Any], *, distinct: bool) -> list[DistArray]:
    """Return arrays as vectors; their distinct elements, if `distinct`."""
    flat = [a.ravel() for a in all_beside(*arrays)]
    return [sets.distinct(name, x, equal_nan=True)["values"] for x in flat] if distinct else flat


@by_numpy(np.union1d)
@side_by_side
def union1d(ar1: Any, ar2: Any) -> DistArray:
    """Return the distinct elements of two arrays."""
    both = joining.concat((ar1, ar2), axis=None)
    return sets.distinct("union1d", both, equal_nan=True)["values"]


@by_numpy(np.intersect1d)
@side_by_side
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """Return the distinct elements that two arrays have in common, and with `return_indices` where each of them has
    them.
    """
    flat = _flat("intersect1d", (ar1, ar2), distinct=False)
    at: list[Any] = [None, None]
    if not assume_unique:
        facts = ("indices",) if return_indices else ()
        found = [sets.distinct("intersect1d", x, facts, equal_nan=True) for x in flat]
        flat, at = [f["values"] for f in found], [f.get("indices") for f in found]
    both = joining.concat(flat)
    if not return_indices:
        both = sorting.sort(both)
        return sets.compressed("intersect1d", elementwise.equal(both[1:], both[:-1]), both[:-1])[0]
    order = sorting.argsort(both)
    both = both[order]
    twice = elementwise.equal(both[1:], both[:-1])
    values, one, other = sets.compressed("intersect1d", twice, both[:-1], order[:-1], order[1:])
    other = other - flat[0].size
    return values, *(i if original is None else original[i] for i, original in zip((one, other), at))


@by_numpy(np.setdiff1d)
@side_by_side
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """Return the distinct elements of the first array that are not in the second."""
    ar1, ar2 = all_beside(ar1, ar2)  # which may be refused: before anything is computed
    (x,) = _flat("setdiff1d", (ar1,), distinct=not assume_unique)
    if ar1.dtype.kind != ar2.dtype.kind and ar2.dtype.kind in "mMb":  # whether dates are compared is up to their number
        (ar2,) = _flat("setdiff1d", (ar2,), distinct=not assume_unique)
    left = sets.compressed("setdiff1d", isin(x, ar2, invert=True), x)
    return left[0]


@by_numpy(np.setxor1d)
@side_by_side
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """Return the distinct elements that are in one of two arrays only."""
    both = sorting.sort(joining.concat(_flat("setxor1d", (ar1, ar2), distinct=not assume_unique)))
    if not both.size:
        return both
    differs = elementwise.not_equal(both[1:], both[:-1])
    ends = beside(both, np.ones(1, bool))
    edges = joining.concat([ends, differs, ends])
    alone = sets.compressed("setxor1d", elementwise.logical_and(edges[1:], edges[:-1]), both)
    return alone[0]
