"""``reduce``, ``accumulate`` and ``reduceat`` of numpy's ufuncs, with all that their signatures have.

numpy's own reductions are these: ``np.sum(x, where=...)`` is ``np.add.reduce``. What is folded how is decided in
`distarray.ops.ufunc_methods`; here are masks, initial values, ``out=`` and numpy's errors.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from distarray.arguments import (
    NOT_GIVEN,
    check_cast,
    host_array,
    keeps_axes,
    naming,
    normalize_axes,
    reduced_axes,
    refuse_loose_axis,
    shown,
)
from distarray.array.array import DistArray
from distarray.array.by_numpy import call_by_numpy
from distarray.array.out import into
from distarray.composed.views import as_distarray, beside
from distarray.dtypes import as_dtype
from distarray.expr.broadcasting import broadcast_shapes, reduced_shape
from distarray.ops import creation, elementwise, manipulation, reductions, ufunc_methods
from distarray.ops.creation import full_like
from distarray.ops.families import ready_made
from distarray.types import DType, HostArray


def _check(ufunc: np.ufunc, method: str) -> None:
    """Raise numpy's errors of what has no such method."""
    if ufunc.signature is not None:
        raise RuntimeError("Reduction not defined on ufunc with signature")
    if ufunc.nin != 2:
        raise ValueError(f"{method} only supported for binary functions")
    if ufunc.nout != 1:
        raise ValueError(f"{method} only supported for functions returning a single value")


def is_everything(where: Any) -> bool:
    """Return whether ``where=`` leaves nothing out, as it does if it is not given."""
    return where is True or where is NOT_GIVEN


def mask_of(where: Any) -> Any:
    """Return ``where=`` as an array of booleans, ours or numpy's; None if it leaves nothing out."""
    if is_everything(where):
        return None
    if not hasattr(where, "dtype") or isinstance(where, np.generic):
        return host_array(where, "where", np.bool_)
    check_cast(where.dtype, np.bool_, name="where")
    return where


def mask_over(x: DistArray, where: Any) -> Any:
    """Return `mask_of` as an array of the shape of `x` that lives where `x` does.

    Raises
    ------
    ValueError
        If it does not broadcast to that shape.
    """
    mask = mask_of(where)
    if mask is None:
        return None
    if broadcast_shapes(mask.shape, x.shape) != x.shape:
        raise ValueError(f"where= of shape {mask.shape} does not broadcast to the shape {x.shape} of the operand")
    return manipulation.broadcast_to(beside(x, mask), x.shape)


def initial_value(initial: Any, dtype: DType) -> np.generic:
    """Return ``initial=`` as a number of `dtype`; numpy's error if it is none. An array of one element is computed."""
    if isinstance(initial, DistArray) and not initial.ndim:
        initial = initial.compute()[()]
    given = None if hasattr(initial, "dtype") else dtype
    if isinstance(initial, DistArray) or host_array(initial, "initial", given).ndim:
        raise ValueError(f"initial={shown(initial)}: setting an array element with a sequence.")
    value = np.empty(1, dtype)
    with naming(initial=initial):
        value[0] = initial
    return value[0]


# ------------------------------------------------------------------------------------------------------ reduce


def reduce(
    ufunc: np.ufunc,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NOT_GIVEN,
    where: Any = True,
) -> DistArray:
    """Do what ``ufunc.reduce`` does.

    Functions that are not associative (``subtract``) go along one axis, which is whole in one task.

    Parameters
    ----------
    initial
        What to begin with; None: the first element, also where the function has a value of nothing.
    where
        Which elements count.

    Raises
    ------
    ValueError
        If nothing is left to reduce, and neither `initial` nor the function says what that is.
    """
    _check(ufunc, "reduce")
    result = reduced_for(out, ufunc, x, axis, dtype, keepdims, initial, where)
    return result if out is None else into(out, result, casting="unsafe")


@cache
def _reduction_by(ufunc: np.ufunc, n: int) -> Callable[..., DistArray]:
    """Return what `reduced_for` does, as a function of `n` arrays that is made ready: the mask may be one."""
    return ready_made(n, is_boxed=True)(partial(_reduced, ufunc))


def reduced_for(
    out: Any,
    ufunc: np.ufunc,
    x: Any,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    initial: Any = NOT_GIVEN,
    where: Any = True,
) -> DistArray:
    """Return what `reduce` puts into `out`, of which only the dtype counts here, before it is cast to that."""
    n = 1 if is_everything(where) else 2
    return _reduction_by(ufunc, n)(x, where, axis, dtype, keepdims, initial, dtype_of_out(out))


def _reduced(
    ufunc: np.ufunc, x: Any, where: Any, axis: Any, dtype: Any, keepdims: Any, initial: Any, of_out: DType | None
) -> DistArray:
    name = ufunc.__name__
    x = as_distarray(x)
    axes = reduced_axes(axis, x.ndim)
    keep = keeps_axes(keepdims)
    loop = loop_dtype(ufunc, "reduce", x, dtype, of_out)
    if loop.kind == "m":
        x = x.astype(loop, copy=False)  # of units numpy's functions take those of their operand
    if len(axes) > 1 and name not in ufunc_methods.ASSOCIATIVE:
        raise ValueError(f"reduction operation '{name}' is not reorderable, so at most one axis may be specified")
    if initial is NOT_GIVEN:
        start = ufunc_methods.of_nothing(name, loop)
    else:
        start = None if initial is None else initial_value(initial, loop)
        if start is not None:
            # numpy puts it where the result is to be, and begins with what is there then
            start = np.array([start]).astype(loop if of_out is None else of_out).astype(loop)[0]
    mask = mask_over(x, where)
    if mask is not None and start is None:
        raise ValueError(
            f"reduction operation '{name}' does not have an identity, so to use a where mask one has to specify "
            "'initial'"
        )
    if start is None and any(x.shape[a] == 0 for a in axes):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    if name in ufunc_methods.ASSOCIATIVE:
        begins = initial is not NOT_GIVEN and initial is not None
        return _fold(ufunc, x, axes, loop, keep, start, begins, mask)
    return _fold_in_order(name, x, axes, loop, keep, start, mask)


def loop_dtype(ufunc: np.ufunc, method: str, x: DistArray, dtype: Any, of_out: DType | None) -> DType:
    """Return the dtype in which a method of `ufunc` computes: where ``dtype=`` says none, that of ``out=`` has a
    say.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    return ufunc_methods.resolved_dtype(ufunc.__name__, method, x.dtype, wanted, of_out)


def dtype_of_out(out: Any, default: DType | None = None) -> DType | None:
    """Return the dtype of ``out=``, `default` if there is none."""
    (target,) = out if isinstance(out, tuple) and len(out) == 1 else (out,)
    return getattr(target, "dtype", default)


def _fold(
    ufunc: np.ufunc,
    x: DistArray,
    axes: tuple[int, ...],
    loop: DType,
    keep: bool,
    start: np.generic | None,
    begins: bool,
    mask: Any,
) -> Any:
    """Reduce by an associative function; with `begins` each result begins with `start`."""
    name = ufunc.__name__
    if begins and 0 in x.shape:
        return elementwise.as_scalar(full_like(x, start, dtype=loop, shape=reduced_shape(x.shape, axes, keep)))
    # Sums begin with 0.0, where numpy's may with -0.0: that of `start`, and that of what has no initial value.
    is_from_negative = (
        ufunc is np.add and loop.kind == "f" and (start is None or bool(start == 0 and np.signbit(start)))
    )
    if mask is not None:
        # What has no value of nothing may count `start` any number of times: max and min; and -0.0 of sums.
        neutral = start if is_from_negative else ufunc_methods.of_nothing(name, loop)
        x = elementwise.where(mask, x.astype(loop, copy=False), start if neutral is None else neutral)
    if begins and axes and ufunc is np.multiply and loop.kind in "fc":
        # numpy multiplies it with the first element, and the next ones: what overflows on the way depends on that
        x, begins = _beginning(x.astype(loop, copy=False), axes, start), False
    # sums of half floats are rounded once, with what they begin with
    own = np.dtype(np.float32) if begins and not is_from_negative and ufunc is np.add and loop == np.float16 else loop
    result = reductions.folded(name, x, axes, own, keepdims=keep)
    if is_from_negative:
        are_negative = (x == 0) & elementwise.signbit(x)
        return elementwise.where(reductions.all(are_negative, axes, keepdims=keep), loop.type(-0.0), result)
    if not begins:
        return result
    return getattr(elementwise, name)(start, result).astype(loop, copy=False)


def _beginning(x: DistArray, axes: tuple[int, ...], start: np.generic | None) -> DistArray:
    """Return factors of which the first along some axes is multiplied with `start`."""
    grid = creation.indices(x.shape, np.int64, x._env)
    is_first = functools.reduce(operator.and_, [DistArray._on(grid[a]) == 0 for a in axes])
    return elementwise.where(is_first, elementwise.where(is_first, x, x.dtype.type(1)) * start, x)


def _fold_in_order(
    name: str, x: DistArray, axes: tuple[int, ...], loop: DType, keep: bool, start: np.generic | None, mask: Any
) -> Any:
    if not axes:
        x = x.astype(loop)
        begun = x if start is None else getattr(elementwise, name)(start, x)
        return elementwise.as_scalar(begun if mask is None else elementwise.where(mask, begun, start))
    (axis,) = axes
    result = ufunc_methods.reduce_in_order(name, x, axis, loop, initial=start, where=mask)
    return manipulation.expand_dims(result, axis=axis) if keep else result


# -------------------------------------------------------------------------------------- accumulate, reduceat


def accumulate(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> DistArray:
    """Return ``ufunc.accumulate``: every element joined with all before it along `axis`."""
    _check(ufunc, "accumulate")
    if dtype is None and out is None and (made := call_by_numpy(ufunc.accumulate, (x, axis))) is not None:
        return made
    x = as_distarray(x)
    at = _axis("accumulate", x, axis)
    if out is not None:
        x, dtype = scanned(ufunc, x, dtype, out)
    result = ufunc_methods.accumulate(ufunc.__name__, x, at, dtype)
    return into(out, result, casting="unsafe")


def reduceat(ufunc: np.ufunc, x: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> DistArray:
    """Return ``ufunc.reduceat``: segments of `axis` reduced, from each index to the next.

    The indices come to this process if they are not there; they decide what is read where.
    """
    _check(ufunc, "reduceat")
    # numpy's own is wrong for functions that are not associative, where its vector kernels are: see kernels.ufuncs
    if (
        dtype is None
        and out is None
        and ufunc.__name__ in ufunc_methods.ASSOCIATIVE
        and (made := call_by_numpy(ufunc.reduceat, (x, indices, axis))) is not None
    ):
        return made
    x = as_distarray(x)
    at = _axis("reduceat", x, axis)
    if dtype is not None:
        dtype = as_dtype(dtype)  # before the indices are computed
    places = _host_indices(indices)
    if out is not None:
        x, dtype = scanned(ufunc, x, dtype, out)
    result = ufunc_methods.reduceat(ufunc.__name__, x, places, at, dtype)
    return into(out, result, casting="unsafe")


def scanned(ufunc: np.ufunc, x: DistArray, dtype: Any, out: Any) -> tuple[DistArray, DType | None]:
    """Return what is accumulated into ``out=``, and `loop_dtype` as a ``dtype=``: none that has a unit, that of the
    operand counts.
    """
    of_out = dtype_of_out(out)
    loop = loop_dtype(ufunc, "accumulate", x, dtype, of_out)
    if loop.kind not in "mM":
        return x, loop
    np.empty(1, of_out)[...] = np.empty(1, loop)  # which numpy refuses where units get lost
    return x.astype(loop, copy=False), None


def _axis(method: str, x: DistArray, axis: Any) -> int:
    if not x.ndim:
        raise TypeError(f"cannot {method} on a scalar")
    if axis is None and x.ndim == 1:
        return 0
    refuse_loose_axis(axis)
    axes = normalize_axes(axis, x.ndim)
    if len(axes) != 1:
        raise ValueError(f"{method} does not allow multiple axes: axis={shown(axis)}")
    return axes[0]


def _host_indices(indices: Any) -> HostArray:
    if hasattr(indices, "dtype"):
        check_cast(indices.dtype, np.intp)
    host = indices.compute() if isinstance(indices, DistArray) else host_array(indices, "indices")
    if not host.ndim:
        raise ValueError(f"object of too small depth for desired array: indices={shown(indices)}")
    if host.ndim > 1:
        raise ValueError("setting an array element with a sequence: the indices must have one axis")
    return host.astype(np.intp)
