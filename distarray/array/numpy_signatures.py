"""Functions whose numpy signature is richer than the standard's: both ways of calling them.

The standard's keywords work, and so do numpy's positions, ``out=``, ``where=`` and ``initial=``. What they compute is
decided in `distarray.ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.indexing import nonzero
from distarray.array.out import into
from distarray.array.views import as_distarray
from distarray.errors import NotSupportedError
from distarray.expr.bind import normalize_axes
from distarray.ops import contractions, elementwise, indexing, manipulation, reductions, sorting
from distarray.types import AxesLike, DTypeLike

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "around", "clip", "concat", "concatenate",
    "count_nonzero", "cumprod", "cumsum", "diff", "max", "mean", "min", "prod", "repeat", "round", "sort", "stack",
    "std", "sum", "take", "take_along_axis", "tile", "trace", "tril", "triu", "var", "where",
]  # fmt: skip

#: What ``initial=`` and ``keepdims=`` are when they are not given: numpy tells them from None and False.
_NOT_GIVEN: Any = np._NoValue  # numpy's own, so that its defaults pass through


def _keep(keepdims: Any) -> bool:
    return False if keepdims is _NOT_GIVEN else bool(keepdims)


def _where(x: Any, where: Any, neutral: Any) -> Any:
    """`x` with what is not counted replaced by what changes nothing."""
    if where is _NOT_GIVEN or where is True:
        return x
    return elementwise.where(where, x, neutral)


# ----------------------------------------------------------------------------------------------- reductions


def sum(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = _NOT_GIVEN,
    initial: Any = _NOT_GIVEN,
    where: Any = _NOT_GIVEN,
) -> DistArray:
    """The sum over `axis`, all axes by default. Integers smaller than the default integer widen to it."""
    total = reductions.sum(_where(x, where, 0), axis, dtype, keepdims=_keep(keepdims))
    return into(out, total if initial is _NOT_GIVEN else total + initial)  # type: ignore[no-any-return]


def prod(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = _NOT_GIVEN,
    initial: Any = _NOT_GIVEN,
    where: Any = _NOT_GIVEN,
) -> DistArray:
    """The product over `axis`, all axes by default. Integers smaller than the default integer widen to it."""
    total = reductions.prod(_where(x, where, 1), axis, dtype, keepdims=_keep(keepdims))
    return into(out, total if initial is _NOT_GIVEN else total * initial)  # type: ignore[no-any-return]


def _extremum(name: str, x: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    reduce = getattr(reductions, name)
    join = elementwise.maximum if name == "max" else elementwise.minimum
    if initial is _NOT_GIVEN:
        if where is not _NOT_GIVEN and where is not True:
            raise ValueError(f"reduction operation '{join.__name__}' does not have an identity, so to use a where "
                             "mask one has to specify 'initial'")  # fmt: skip
        return into(out, reduce(x, axis, keepdims=_keep(keepdims)))
    x = _where(as_distarray(x), where, initial)
    axes = normalize_axes(axis, x.ndim)
    if 0 in [x.shape[a] for a in axes]:
        kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if _keep(keepdims) or a not in axes)
        from distarray.array.creation import full_like

        return into(out, full_like(x, initial, shape=kept))
    return into(out, join(reduce(x, axis, keepdims=_keep(keepdims)), initial))


def max(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = _NOT_GIVEN, initial: Any = _NOT_GIVEN,
    where: Any = _NOT_GIVEN,
) -> DistArray:  # fmt: skip
    """The largest element along `axis`; nan where there is one."""
    return _extremum("max", x, axis, out, keepdims, initial, where)  # type: ignore[no-any-return]


def min(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = _NOT_GIVEN, initial: Any = _NOT_GIVEN,
    where: Any = _NOT_GIVEN,
) -> DistArray:  # fmt: skip
    """The smallest element along `axis`; nan where there is one."""
    return _extremum("min", x, axis, out, keepdims, initial, where)  # type: ignore[no-any-return]


amax = max
amin = min


def any(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = _NOT_GIVEN, *, where: Any = _NOT_GIVEN
) -> DistArray:
    """Whether any element along `axis` is true."""
    return into(out, reductions.any(_where(x, where, False), axis, keepdims=_keep(keepdims)))  # type: ignore[no-any-return]


def all(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = _NOT_GIVEN, *, where: Any = _NOT_GIVEN
) -> DistArray:
    """Whether all elements along `axis` are true."""
    return into(out, reductions.all(_where(x, where, True), axis, keepdims=_keep(keepdims)))  # type: ignore[no-any-return]


def count_nonzero(x: Any, /, axis: AxesLike = None, *, keepdims: bool = False) -> DistArray:
    """The number of elements along `axis` that are not zero."""
    return reductions.count_nonzero(x, axis, keepdims=keepdims)  # type: ignore[no-any-return]


def argmax(x: Any, /, axis: int | None = None, out: Any = None, *, keepdims: bool = _NOT_GIVEN) -> DistArray:
    """The index of the first largest element along `axis`; of the flattened array by default. The first nan wins."""
    return into(out, reductions.argmax(x, axis, keepdims=_keep(keepdims)))  # type: ignore[no-any-return]


def argmin(x: Any, /, axis: int | None = None, out: Any = None, *, keepdims: bool = _NOT_GIVEN) -> DistArray:
    """The index of the first smallest element along `axis`; of the flattened array by default. The first nan wins."""
    return into(out, reductions.argmin(x, axis, keepdims=_keep(keepdims)))  # type: ignore[no-any-return]


def mean(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = _NOT_GIVEN,
    *,
    where: Any = _NOT_GIVEN,
) -> DistArray:
    """The mean over `axis`; of integers in double."""
    if where is _NOT_GIVEN or where is True:
        return into(out, reductions.mean(x, axis, dtype, keepdims=_keep(keepdims)))  # type: ignore[no-any-return]
    x = as_distarray(x)
    count = sum(manipulation.broadcast_to(as_distarray(where), x.shape), axis, keepdims=keepdims)
    wanted = dtype or (np.float64 if x.dtype.kind in "biu" else x.dtype)
    return into(out, sum(x, axis, wanted, None, keepdims, where=where) / count)  # type: ignore[no-any-return]


def _moments(
    name: str, x: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: Any, where: Any, correction: Any
) -> Any:
    if where is not _NOT_GIVEN and where is not True:
        raise NotSupportedError(f"{name}: where= is not supported; use x.mean(where=...) of x and of its square")
    # Zero is numpy's default, which is no choice of the caller.
    ddof = None if ddof == 0 and correction is not None else ddof
    reduce = getattr(reductions, name)
    return into(out, reduce(x, axis, dtype=dtype, ddof=ddof, correction=correction, keepdims=_keep(keepdims)))


def std(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    ddof: float | None = None,
    keepdims: bool = _NOT_GIVEN,
    *,
    where: Any = _NOT_GIVEN,
    mean: Any = _NOT_GIVEN,
    correction: float | None = None,
) -> DistArray:
    """The standard deviation over `axis`; the squares are divided by ``count - correction`` (numpy's `ddof`)."""
    return _moments("std", x, axis, dtype, out, ddof, keepdims, where, correction)  # type: ignore[no-any-return]


def var(
    x: Any,
    /,
    axis: AxesLike = None,
    dtype: DTypeLike = None,
    out: Any = None,
    ddof: float | None = None,
    keepdims: bool = _NOT_GIVEN,
    *,
    where: Any = _NOT_GIVEN,
    mean: Any = _NOT_GIVEN,
    correction: float | None = None,
) -> DistArray:
    """The variance over `axis`; the squares are divided by ``count - correction`` (numpy's `ddof`)."""
    return _moments("var", x, axis, dtype, out, ddof, keepdims, where, correction)  # type: ignore[no-any-return]


def cumsum(a: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> DistArray:
    """Partial sums along `axis`, or of the flattened array."""
    return into(out, reductions.cumsum(a, axis, dtype))  # type: ignore[no-any-return]


def cumprod(a: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> DistArray:
    """Partial products along `axis`, or of the flattened array."""
    return into(out, reductions.cumprod(a, axis, dtype))  # type: ignore[no-any-return]


def trace(
    x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None, out: Any = None
) -> DistArray:
    """The sum over the diagonal of two axes."""
    made = contractions.trace(x, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype)
    return into(out, made)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------- elementwise


def round(x: Any, /, decimals: int = 0, out: Any = None) -> DistArray:
    """`x` rounded to `decimals` places, halves to even."""
    return into(out, elementwise.round(x, decimals))  # type: ignore[no-any-return]


around = round


def clip(x: Any, /, min: Any = None, max: Any = None, out: Any = None, **numpys: Any) -> DistArray:
    """`x` limited to the interval from `min` to `max` (numpy's ``a_min``, ``a_max``); None is no limit."""
    low, high = numpys.pop("a_min", min), numpys.pop("a_max", max)
    if numpys:
        raise TypeError(f"clip() got an unexpected keyword argument {next(iter(numpys))!r}")
    return into(out, elementwise.clip(x, low, high))  # type: ignore[no-any-return]


def where(condition: Any, x1: Any = _NOT_GIVEN, x2: Any = _NOT_GIVEN, /) -> Any:
    """`x1` where `condition` is true, else `x2`; with the condition alone the positions where it is true."""
    if x1 is _NOT_GIVEN and x2 is _NOT_GIVEN:
        return nonzero(condition)
    if x1 is _NOT_GIVEN or x2 is _NOT_GIVEN:
        raise ValueError("either both or neither of x and y should be given")
    return elementwise.where(condition, x1, x2)


# ------------------------------------------------------------------------------------------ order and choice


def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> DistArray:
    """The elements of `x` in order along `axis`, of the flattened array if None; numpy's `kind` changes nothing."""
    return sorting.sort(x, axis=axis, descending=descending, stable=stable is not False)  # type: ignore[no-any-return]


def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> DistArray:
    """The indices that sort `x` along `axis`, of the flattened array if None; equal elements keep their order."""
    return sorting.argsort(x, axis=axis, descending=descending, stable=stable is not False)  # type: ignore[no-any-return]


def take(x: Any, indices: Any, /, axis: int | None = None, out: Any = None, mode: str = "raise") -> DistArray:
    """Elements of `x` at `indices` along `axis`; of the flattened array by default."""
    return into(out, indexing.take(as_distarray(x), indices, axis=axis, mode=mode))  # type: ignore[no-any-return]


def take_along_axis(x: Any, indices: Any, /, axis: int | None = -1) -> DistArray:
    """For each position of the other axes, the elements of `x` along `axis` that `indices` name there."""
    return indexing.take_along_axis(x, indices, axis=axis)  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------------------- shape


def concat(
    arrays: Sequence[Any],
    /,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: DTypeLike = None,
    casting: str = "same_kind",
) -> DistArray:
    """Arrays one after the other along `axis`; flattened first if `axis` is None."""
    return into(out, manipulation.concat(arrays, axis=axis, dtype=dtype, casting=casting))  # type: ignore[no-any-return]


concatenate = concat


def stack(
    arrays: Sequence[Any],
    /,
    axis: int = 0,
    out: Any = None,
    *,
    dtype: DTypeLike = None,
    casting: str = "same_kind",
) -> DistArray:
    """Arrays of one shape along a new axis."""
    made = manipulation.stack(arrays, axis=axis)
    if dtype is not None:
        made = made.astype(dtype, casting=casting)
    return into(out, made)  # type: ignore[no-any-return]


def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> DistArray:
    """Each element `repeats` times along `axis`, of the flattened array by default."""
    return manipulation.repeat(x, repeats, axis=axis)  # type: ignore[no-any-return]


def tile(x: Any, repetitions: Any, /) -> DistArray:
    """`x` beside itself: so many times along each axis."""
    return manipulation.tile(x, repetitions)  # type: ignore[no-any-return]


def tril(x: Any, /, k: int = 0) -> DistArray:
    """`x` with zeros above the `k`-th diagonal of its last two axes."""
    return manipulation.tril(x, k=k)  # type: ignore[no-any-return]


def triu(x: Any, /, k: int = 0) -> DistArray:
    """`x` with zeros below the `k`-th diagonal of its last two axes."""
    return manipulation.triu(x, k=k)  # type: ignore[no-any-return]


def diff(x: Any, /, n: int = 1, axis: int = -1, prepend: Any = _NOT_GIVEN, append: Any = _NOT_GIVEN) -> DistArray:
    """`n`-th differences of neighbours along `axis`, with values before and after if given."""
    before, after = (None if v is _NOT_GIVEN else v for v in (prepend, append))
    return manipulation.diff(x, axis=axis, n=n, prepend=before, append=after)  # type: ignore[no-any-return]
