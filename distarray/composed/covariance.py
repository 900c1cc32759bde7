"""Covariance and correlation of variables, with weights of their observations."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from distarray.arguments import host_array, number
from distarray.array.array import DistArray
from distarray.composed.creation import empty
from distarray.composed.views import as_it_is, beside
from distarray.dtypes import as_dtype
from distarray.errors import warn_user
from distarray.expr.errstates import divide_by_zero
from distarray.expr.side_by_side import side_by_side
from distarray.ops import contractions, elementwise, joining
from distarray.ops.families import ready_made
from distarray.types import DType


@side_by_side
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> DistArray:
    """Return the covariance matrix of variables in rows, or in columns if `rowvar` is false.

    Parameters
    ----------
    m, y
        Variables; those of `y` follow those of `m`.
    bias, ddof
        The sums are divided by the number of observations less `ddof`: 1 by default, 0 with `bias`.
    fweights, aweights
        How often each observation was made, and its weight. That they fit is computed at the call.
    dtype
        Of the result; at least double by default.
    """
    if ddof is not None and number(ddof, "ddof", real=True) != int(ddof):
        raise ValueError(f"ddof={ddof} must be an integer")
    x = _variables(m, y, rowvar, dtype)
    if not x.shape[0]:
        return empty((0, 0), team=x.team, device=x.device)
    less = operator.index(int(not bias) if ddof is None else int(ddof))
    if x.dtype.kind in "biu":  # numpy takes the mean away in place
        np.subtract(np.empty(0, x.dtype), np.empty(0), out=np.empty(0, x.dtype))
    weights, divisor = _weights(x, fweights, aweights, less)
    if divisor <= 0:
        warn_user("Degrees of freedom <= 0 for slice")
        divide_by_zero(1, "divide")
        divisor = 0.0
    if weights is None:
        centred = x - x.mean(axis=1, keepdims=True)
        turned = centred.T
    else:
        centred = x - (x * weights).sum(axis=1, keepdims=True) / weights.sum()
        turned = (centred * weights).T
    product = contractions.matmul(centred, elementwise.conj(turned) if x.dtype.kind == "c" else turned)
    return (product * (1 / divisor if divisor else math.inf)).squeeze()


def _variables(m: Any, y: Any, rowvar: bool, dtype: Any) -> DistArray:
    """Return the variables as rows of a matrix."""
    x = as_it_is(m)
    other = None if y is None else beside(x, y)
    for given, array in (("m", x), ("y", other)):
        if array is not None and array.ndim > 2:
            raise ValueError(f"{given} has more than 2 dimensions")
    wanted: DType = (
        np.result_type(x.dtype, np.float64, *(() if other is None else (other.dtype,)))
        if dtype is None
        else as_dtype(dtype)
    )
    rows: DistArray = x.astype(wanted, copy=False)
    rows = rows.reshape((1, -1)) if rows.ndim < 2 else rows if rowvar else rows.T
    if other is None or not rows.shape[0]:  # of no variable, numpy does not look at `y`
        return rows
    more = other.astype(wanted, copy=False)
    more = more.reshape((1, -1)) if more.ndim < 2 else more
    more = more if rowvar or more.shape[0] == 1 else more.T
    if more.shape[1] != rows.shape[1]:
        raise ValueError(f"y has {more.shape[1]} observations, but m has {rows.shape[1]}")
    return joining.concat([rows, more], axis=0)


def _weights(x: DistArray, fweights: Any, aweights: Any, less: int) -> tuple[DistArray | None, float]:
    """Return the weights of the observations, and what the sums are divided by."""
    n = x.shape[1]
    if fweights is None and aweights is None:
        return None, n - less
    given = []
    weighed = []
    for name, value in (("fweights", fweights), ("aweights", aweights)):
        if value is None:
            continue
        w = beside(x, value if isinstance(value, DistArray) else host_array(value, name))
        if w.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if not w.ndim:
            raise TypeError(f"{name} must have one axis, not be a number")
        if w.shape[0] != n:
            raise RuntimeError(f"incompatible numbers of samples and {name}: {n} and {w.shape[0]}")
        weighed.append((name, w))
    for name, w in weighed:
        if name == "fweights" and w.dtype.kind not in "iu" and not bool((w == elementwise.rint(w)).all()):
            raise TypeError("fweights must be integer")
        if bool((w < 0).any()):
            raise ValueError(f"{name} cannot be negative")
        given.append(w.astype(np.float64, copy=False))
    weights = given[0] if len(given) == 1 else given[0] * given[1]
    total = float(weights.sum())
    if not total:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    if not less:
        return weights, total
    if aweights is None:
        return weights, total - less
    return weights, total - less * float((weights * given[-1]).sum()) / total


@ready_made(1, is_boxed=True)
@side_by_side
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> DistArray:
    """Return the matrix of correlation coefficients of variables in rows, or in columns if `rowvar` is false."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    deviation = elementwise.sqrt(c.diagonal().real)
    scaled = c / deviation[:, None] / deviation[None, :]
    # Rounding may lead out of the interval.
    parts = [elementwise.clip(part, -1, 1) for part in (scaled.real, scaled.imag)]
    return parts[0] if scaled.dtype.kind != "c" else parts[0] + 1j * parts[1]
