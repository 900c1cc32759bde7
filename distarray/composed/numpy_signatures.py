"""Functions whose numpy signature is richer than the standard's: both ways of calling them.

The standard's keywords work, and so do numpy's positions, ``out=``, ``where=`` and ``initial=``. What they compute is
decided in `distarray.ops`.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.arguments import CASTINGS, NOT_GIVEN, choice, keeps_axes, naming, number
from distarray.array.array import DistArray
from distarray.array.out import into, into_copied
from distarray.composed.moments import masked_mean, masked_variance
from distarray.composed.nonzero import nonzero
from distarray.composed.ufunc_reductions import (
    dtype_of_out,
    is_everything,
    loop_dtype,
    mask_of,
    reduce,
    reduced_for,
    scanned,
)
from distarray.composed.ufuncs import clip_operands
from distarray.composed.views import as_distarray
from distarray.dtypes import as_dtype
from distarray.expr.side_by_side import side_by_side
from distarray.ops import contractions, differences, elementwise, indexing, joining, reductions, sorting
from distarray.ops.families import by_numpy, ready_made
from distarray.types import AxesLike, Casting, DTypeLike


def _is_plain(initial: Any, where: Any) -> bool:
    """Return whether all elements count and nothing else."""
    return initial is NOT_GIVEN and is_everything(where)


# ----------------------------------------------------------------------------------------------- reductions


@ready_made(1)
@side_by_side
def sum(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = NOT_GIVEN,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> DistArray:
    """Return the sum over `axis`, all axes by default. Integers smaller than the default integer widen to it."""
    if _is_plain(initial, where) and out is None:
        return reductions.sum(x, axis, dtype, keepdims=keeps_axes(keepdims))
    return reduce(np.add, x, axis, dtype, out, keepdims, initial, where)


@ready_made(1)
@side_by_side
def prod(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = NOT_GIVEN,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> DistArray:
    """Return the product over `axis`, all axes by default. Integers smaller than the default integer widen to it."""
    if _is_plain(initial, where) and out is None:
        return reductions.prod(x, axis, dtype, keepdims=keeps_axes(keepdims))
    return reduce(np.multiply, x, axis, dtype, out, keepdims, initial, where)


@ready_made(1)
@side_by_side
def max(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = NOT_GIVEN, initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> DistArray:  # fmt: skip
    """Return the largest element along `axis`, of all axes by default; nan where one is nan."""
    if _is_plain(initial, where) and out is None:
        return reductions.max(x, axis, keepdims=keeps_axes(keepdims))
    return reduce(np.maximum, x, axis, None, out, keepdims, initial, where)


@ready_made(1)
@side_by_side
def min(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = NOT_GIVEN, initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> DistArray:  # fmt: skip
    """Return the smallest element along `axis`, of all axes by default; nan where one is nan."""
    if _is_plain(initial, where) and out is None:
        return reductions.min(x, axis, keepdims=keeps_axes(keepdims))
    return reduce(np.minimum, x, axis, None, out, keepdims, initial, where)


amax = max
amin = min


@ready_made(1)
@side_by_side
def any(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = NOT_GIVEN, *, where: Any = NOT_GIVEN
) -> DistArray:
    """Return whether any element along `axis` is true."""
    if _is_plain(NOT_GIVEN, where) and out is None:
        return reductions.any(x, axis, keepdims=keeps_axes(keepdims))
    return reduce(np.logical_or, x, axis, None, out, keepdims, where=where)


@ready_made(1)
@side_by_side
def all(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = NOT_GIVEN, *, where: Any = NOT_GIVEN
) -> DistArray:
    """Return whether all elements along `axis` are true."""
    if _is_plain(NOT_GIVEN, where) and out is None:
        return reductions.all(x, axis, keepdims=keeps_axes(keepdims))
    return reduce(np.logical_and, x, axis, None, out, keepdims, where=where)


def _put(out: Any, result: Any) -> DistArray:
    """Return `result`, or `out` with it: numpy's reductions cast to anything, but for those that end with a ufunc."""
    return into(out, result, casting="unsafe")


@ready_made(1)
def ptp(x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = NOT_GIVEN) -> DistArray:
    """Return the largest minus the smallest element along `axis`."""
    if out is None:
        return reductions.ptp(x, axis, keepdims=keeps_axes(keepdims))
    largest = reduced_for(out, np.maximum, x, axis, None, keepdims)
    held = largest.astype(dtype_of_out(out, largest.dtype), copy=False)  # where numpy subtracts from it
    return into(out, elementwise.subtract(held, reductions.min(x, axis, keepdims=keeps_axes(keepdims))))


@ready_made(1)
def argmax(x: Any, /, axis: int | None = None, out: Any = None, *, keepdims: bool = NOT_GIVEN) -> DistArray:
    """Return the index of the first largest element along `axis`; of the flattened array by default. The first nan
    wins.
    """
    return put_index(out, reductions.argmax(x, axis, keepdims=keepdims is not NOT_GIVEN and bool(keepdims)))


@ready_made(1)
def argmin(x: Any, /, axis: int | None = None, out: Any = None, *, keepdims: bool = NOT_GIVEN) -> DistArray:
    """Return the index of the first smallest element along `axis`; of the flattened array by default. The first nan
    wins.
    """
    return put_index(out, reductions.argmin(x, axis, keepdims=keepdims is not NOT_GIVEN and bool(keepdims)))


def put_index(out: Any, index: Any) -> DistArray:
    """Return `index`, or `out` with it, whose numbers numpy would have to take for indices."""
    if out is not None and not np.can_cast(out.dtype, np.intp, "safe"):
        raise TypeError(f"Cannot cast scalar from {out.dtype!r} to dtype('int64') according to the rule 'safe'")
    return _put(out, index)


@ready_made(1)
@side_by_side
def mean(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
) -> DistArray:
    """Return the mean over `axis`, all axes by default; that of integers is double."""
    if _is_plain(NOT_GIVEN, where) and out is None and (dtype is None or as_dtype(dtype) != np.float16):
        return reductions.mean(x, axis, dtype, keepdims=keeps_axes(keepdims))
    return _put(out, masked_mean(as_distarray(x), axis, dtype, keeps_axes(keepdims), mask_of(where), out))


def corrected(ddof: float | None, correction: Any) -> float:
    """Return what is taken off the count: numpy's `ddof` or the standard's `correction`.

    Raises
    ------
    ValueError
        If both are given; 0 is numpy's default of `ddof`, and no choice of the caller.
    """
    if correction is NOT_GIVEN or correction is None:
        return 0.0 if ddof is None else float(number(ddof, "ddof", real=True))
    if ddof:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return float(number(correction, "correction", real=True))


@side_by_side
def std(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    ddof: float | None = None,
    keepdims: bool = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
    mean: Any = NOT_GIVEN,
    correction: float | None = None,
) -> DistArray:
    """Return the standard deviation over `axis`; the squares are divided by ``count - correction`` (numpy's `ddof`)."""
    less = corrected(ddof, correction)
    if _is_plain(mean, where) and _is_of_moments(x, dtype, out):
        return into(out, reductions.std(x, axis, dtype=dtype, ddof=less, keepdims=keeps_axes(keepdims)))
    return into(out, root(variance(x, axis, dtype, out, less, keepdims, where, mean), out))


def root(variance: DistArray, out: Any) -> DistArray:
    """Return the root of a variance, in its dtype: numpy writes that of an array into it, ``out=`` if there is one."""
    casting: Casting = "same_kind" if variance.ndim or out is not None else "unsafe"
    return elementwise.sqrt(variance).astype(variance.dtype, casting=casting, copy=False)


@side_by_side
def var(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    ddof: float | None = None,
    keepdims: bool = NOT_GIVEN,
    *,
    where: Any = NOT_GIVEN,
    mean: Any = NOT_GIVEN,
    correction: float | None = None,
) -> DistArray:
    """Return the variance over `axis`; the squares are divided by ``count - correction`` (numpy's `ddof`).

    `mean` is one that is known already, with `axis` kept.
    """
    less = corrected(ddof, correction)
    return _put(out, variance(x, axis, dtype, out, less, keepdims, where, mean))


def variance(x: Any, axis: Any, dtype: Any, out: Any, less: float, keepdims: Any, where: Any, mean: Any) -> DistArray:
    """Return what `var` writes into `out`, with `less` taken off the count."""
    if _is_plain(mean, where) and _is_of_moments(x, dtype, out):
        return reductions.var(x, axis, dtype=dtype, ddof=less, keepdims=keeps_axes(keepdims))
    about = None if mean is NOT_GIVEN else mean
    return masked_variance(as_distarray(x), axis, dtype, less, keeps_axes(keepdims), mask_of(where), about, out)


def _is_of_moments(x: Any, dtype: DTypeLike, out: Any) -> bool:
    """Return whether a variance in `dtype` is one reduction: its mean is not rounded, no imaginary part is dropped,
    and nothing is computed in another dtype, that of ``out=``.
    """
    given = as_distarray(x).dtype
    wanted = given if dtype is None else as_dtype(dtype)
    if out is not None and dtype_of_out(out) != (np.float64 if dtype is None and wanted.kind in "biu" else wanted):
        return False
    if dtype is None:
        return True
    is_real = wanted.kind == "f" and given.kind != "c" and wanted != np.float16
    return given.kind in "mM" or is_real or wanted.kind == given.kind == "c"


@ready_made(1)
def cumsum(a: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> DistArray:
    """Return partial sums along `axis`, or of the flattened array."""
    if out is not None and dtype is None:
        a, dtype = scanned(np.add, as_distarray(a), None, out)
    return _put(out, reductions.cumsum(a, axis, dtype))


@ready_made(1)
def cumprod(a: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> DistArray:
    """Return partial products along `axis`, or of the flattened array."""
    if out is not None and dtype is None:
        a, dtype = scanned(np.multiply, as_distarray(a), None, out)
    return _put(out, reductions.cumprod(a, axis, dtype))


@ready_made(1)
def trace(
    x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None, out: Any = None
) -> DistArray:
    """Return the sum over the diagonal of two axes."""
    if out is not None and dtype is None:
        x = as_distarray(x)
        dtype = loop_dtype(np.add, "reduce", x, None, dtype_of_out(out))
        if dtype.kind == "m":
            x, dtype = x.astype(dtype, copy=False), None  # units are those of the elements
    return _put(out, contractions.trace(x, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype))


@ready_made(2)
def dot(a: Any, b: Any, out: Any = None) -> DistArray:
    """Return the sum of products over the last axis of `a` and the last but one of `b`; a product with a scalar
    otherwise. `out` has the shape and the dtype of the result.
    """
    made = contractions.dot(a, b)
    if hasattr(out, "dtype") and (out.dtype, out.shape) != (made.dtype, made.shape):
        raise ValueError(
            "output array is not acceptable (must have the right datatype, number of dimensions, and be a C-Array): it "
            f"has {out.dtype} and the shape {out.shape}, the result {made.dtype} and {made.shape}"
        )
    return into(out, made)


# ---------------------------------------------------------------------------------------------- elementwise


def round(x: Any, /, decimals: int = 0, out: Any = None) -> DistArray:
    """Return `x` rounded to `decimals` places, halves to even."""
    if hasattr(out, "dtype"):  # numpy computes in `out`, which has to take the steps between too
        x = as_distarray(x)
        np.empty(0, x.dtype).round(decimals, np.empty(0, out.dtype))
        if x.dtype.kind != "c" and out.dtype.kind in "fc" and np.can_cast(x.dtype, out.dtype):
            x = x.astype(out.dtype, copy=False)
    return into(out, elementwise.round(x, decimals))


around = round


@ready_made(1)
@side_by_side
def clip(
    x: Any,
    /,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    *,
    where: Any = True,
    dtype: DTypeLike = None,
    casting: str = "same_kind",
    **numpys: Any,
) -> DistArray:
    """Return `x` limited to the interval from `min` to `max` (numpy's ``a_min``, ``a_max``); None is no limit.

    Elements that `where` leaves out keep what `out` has there.
    """
    if numpys.keys() & {"a_min", "a_max"} and not (min is None and max is None):
        raise ValueError("clip: min= and max= cannot be given with a_min= or a_max=")
    if len(numpys.keys() & {"a_min", "a_max"}) == 1:
        raise TypeError("clip: a_min= and a_max= go together; None is no limit, and min= and max= may stand alone")
    low, high = numpys.pop("a_min", min), numpys.pop("a_max", max)
    if numpys:
        raise TypeError(f"clip() got an unexpected keyword argument {next(iter(numpys))!r}")
    casting = choice(casting, CASTINGS, "casting")
    if dtype is not None or casting != "same_kind":
        x, low, high = clip_operands(as_distarray(x), low, high, dtype, casting)
    elif type(x) in (bool, int, float, complex):
        x = as_distarray(x)  # it is no number beside its limits, which are weak
    result = elementwise.clip(x, low, high)
    if (mask := mask_of(where)) is not None:
        kept = result if out is None else out
        result = elementwise.where(mask, result.astype(kept.dtype, casting=casting, copy=False), kept)
    return into(out, result, casting=casting, broadcasts=True)


def where(condition: Any, x1: Any = NOT_GIVEN, x2: Any = NOT_GIVEN, /) -> Any:
    """Return `x1` where `condition` is true, else `x2`; with the condition alone the positions where it is true."""
    if x1 is NOT_GIVEN and x2 is NOT_GIVEN:
        return nonzero(condition)
    if x1 is NOT_GIVEN or x2 is NOT_GIVEN:
        raise ValueError("either both or neither of x and y should be given")
    return elementwise.where(condition, x1, x2)


# ------------------------------------------------------------------------------------------ order and choice


def _check_sort(kind: Any, order: Any, stable: Any, descending: Any) -> None:
    """Raise numpy's errors for options that change nothing here, but have to make sense."""
    if kind is not None and descending:
        raise ValueError("`kind` and keyword parameters can't be provided at the same time. Use only one of them.")
    if kind is not None or order is not None or stable is not None:
        with naming(kind=kind, order=order, stable=stable):
            np.empty(0).sort(kind=kind, order=order, stable=stable)


@ready_made(1)
def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> DistArray:
    """Return the elements of `x` in order along `axis`, of the flattened array if None; numpy's `kind` changes
    nothing.
    """
    _check_sort(kind, order, stable, descending)
    return sorting.sort(x, axis=axis, descending=descending, stable=stable is not False)


@ready_made(1)
def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> DistArray:
    """Return the indices that sort `x` along `axis`, of the flattened array if None; equal elements keep their
    order.
    """
    _check_sort(kind, order, stable, descending)
    return sorting.argsort(x, axis=axis, descending=descending, stable=stable is not False)


def _taken_nbytes(x: Any, indices: Any, /, axis: int | None = None, out: Any = None, mode: str = "raise") -> int:
    """Return the bytes of what `take` takes."""
    rows = x.size if axis is None else x.shape[axis]
    return int(x.nbytes // builtins.max(rows, 1) * np.size(indices))


@by_numpy(np.take, _taken_nbytes)
@side_by_side
def take(x: Any, indices: Any, /, axis: int | None = None, out: Any = None, mode: str = "raise") -> DistArray:
    """Return the elements of `x` at `indices` along `axis`; of the flattened array by default."""
    return into_copied(out, indexing.take(as_distarray(x), indices, axis=axis, mode=mode))


# ----------------------------------------------------------------------------------------------------- shape


@by_numpy(np.concatenate)
def concat(
    arrays: Sequence[Any],
    /,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: DTypeLike = None,
    casting: str = "same_kind",
) -> DistArray:
    """Return arrays one after the other along `axis`; flattened first if `axis` is None."""
    dtype = _joined_dtype(out, dtype)
    return _put(out, joining.concat(arrays, axis=axis, dtype=dtype, casting=casting))


concatenate = concat


@by_numpy(np.stack)
def stack(
    arrays: Sequence[Any],
    /,
    axis: int = 0,
    out: Any = None,
    *,
    dtype: DTypeLike = None,
    casting: str = "same_kind",
) -> DistArray:
    """Return arrays of one shape along a new axis."""
    dtype = _joined_dtype(out, dtype)
    return _put(out, joining.stack(arrays, axis=axis, dtype=dtype, casting=casting))


def _joined_dtype(out: Any, dtype: DTypeLike) -> DTypeLike:
    """Return the dtype that arrays are cast to before they are joined: where they go to `out`, its own."""
    if out is None:
        return dtype
    if dtype is not None:
        raise TypeError("concatenate() only takes `out` or `dtype` as an argument, but both were provided.")
    return getattr(out, "dtype", None)


@ready_made(1)
@side_by_side
def diff(x: Any, /, n: int = 1, axis: int = -1, prepend: Any = NOT_GIVEN, append: Any = NOT_GIVEN) -> DistArray:
    """Return the `n`-th differences of neighbours along `axis`, with values before and after if given."""
    before, after = (None if v is NOT_GIVEN else v for v in (prepend, append))
    return differences.diff(x, axis=axis, n=n, prepend=before, append=after)
