"""flox on DistArrays: group-bys of xarray that are reductions by segments here, lazy, whatever the number of groups.

    flox.xarray.xarray_reduce(ds.air, "time.month", func=segments("nanmean"))

flox takes a function for a reduction by codes of groups; `segments` gives it ours. What it calls for the names of its
own (``func="mean"``) writes into arrays of numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.arguments import choice
from distarray.composed.numpy_signatures import where
from distarray.ops import elementwise
from distarray.ops.indexing import take
from distarray.ops.segments import segment_reduce

#: (array with the axis last, codes, number of groups, degrees of freedom) -> groups last
_Reduction = Callable[[Any, Any, int, float], Any]


def _plain(name: str) -> _Reduction:
    return lambda x, codes, n, ddof: segment_reduce(x, codes, n, axis=x.ndim - 1, func=name, ddof=ddof, mode="drop")


_sum = _plain("sum")


def _present(x: Any) -> Any:
    """Return where a value is none of the missing ones; None if there can be none."""
    if x.dtype.kind in "fc":
        return elementwise.logical_not(elementwise.isnan(x))
    return elementwise.logical_not(elementwise.isnat(x)) if x.dtype.kind in "mM" else None


def _count(x: Any, codes: Any, n: int, ddof: float) -> Any:
    present = _present(x)
    present = elementwise.isfinite(x) if present is None else present  # integers are
    return _sum(elementwise.astype(present, np.int64), codes, n, 0)


def _without_gaps(name: str, neutral: float) -> _Reduction:
    """Return a reduction of the values that are there; where there is none, that of none (of extremes nan)."""

    def reduction(x: Any, codes: Any, n: int, ddof: float) -> Any:
        present = _present(x)
        if present is None:
            return _plain(name)(x, codes, n, ddof)
        made = _plain(name)(where(present, x, neutral), codes, n, ddof)
        return made if math.isfinite(neutral) else where(_count(x, codes, n, 0) == 0, math.nan, made)

    return reduction


def _mean(x: Any, codes: Any, n: int, ddof: float) -> Any:
    """Return sums over the numbers of values less `ddof`; nan where none are left, without a warning."""
    left = _count(x, codes, n, 0) - ddof
    means = _without_gaps("sum", 0)(x, codes, n, 0) / where(left > 0, left, 1)
    return where(left > 0, means, math.nan)


def _variance(x: Any, codes: Any, n: int, ddof: float) -> Any:
    off = x - take(_mean(x, codes, n, 0), np.where(codes < n, codes, 0), axis=x.ndim - 1)
    return _mean(off * off, codes, n, ddof)


def _root(variance: _Reduction) -> _Reduction:
    return lambda x, codes, n, ddof: elementwise.sqrt(variance(x, codes, n, ddof))


#: By flox's names.
_REDUCTIONS: dict[str, _Reduction] = {
    **{name: _plain(name) for name in "sum prod max min mean var any all first last".split()},
    "std": _root(_plain("var")),
    "count": _count,
    "nansum": _without_gaps("sum", 0),
    "nanprod": _without_gaps("prod", 1),
    "nanmax": _without_gaps("max", -math.inf),
    "nanmin": _without_gaps("min", math.inf),
    "nanmean": lambda x, codes, n, ddof: _mean(x, codes, n, 0),
    "nanvar": _variance,
    "nanstd": _root(_variance),
}


#: What groups without values have, where that is not nan.
_OF_NOTHING = {"count": 0, "any": False, "all": True}
#: Of results that have one of their own.
_DTYPES: dict[str, Any] = {"count": np.intp, "any": np.bool_, "all": np.bool_}


def segments(name: str, *, ddof: float = 0) -> Any:
    """Return a reduction for ``func=`` of flox's functions, that stays lazy and where the array lies.

    Parameters
    ----------
    name
        flox's: ``sum prod max min mean var std count any all first last``; with ``nan`` before the first seven it
        passes over missing values.
    ddof
        Of variances and standard deviations.

    Returns
    -------
    flox.Aggregation

    Notes
    -----
    Each tile makes one row per group, and these combine in a tree: no element moves, and labels need not be sorted.
    """
    from flox.aggregations import Aggregation

    reduce = _REDUCTIONS[choice(name, tuple(_REDUCTIONS), "name")]
    kind = name.removeprefix("nan")

    def grouped(codes: Any, array: Any, *, size: int, fill_value: Any = None, **_options: Any) -> Any:
        codes = np.asarray(codes)
        made = reduce(array, codes, size, ddof)
        missing = np.bincount(codes[codes < size], minlength=size)[:size] == 0
        return made if kind in _OF_NOTHING or not missing.any() else where(missing, fill_value, made)

    return Aggregation(
        f"segment_{name}",
        numpy=grouped,
        chunk=None,
        combine=None,
        fill_value=_OF_NOTHING.get(kind, math.nan),
        # Where nobody says another one.
        **({"final_fill_value": 1} if name == "prod" else {}),
        final_dtype=_DTYPES.get(kind, np.floating if kind in ("mean", "var", "std") else None),
        preserves_dtype=kind in ("max", "min", "first", "last"),
    )
