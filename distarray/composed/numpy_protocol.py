"""numpy's functions on DistArrays: ``np.add(x, y)`` is ``dx.add(x, y)``, and nothing gathers silently.

A function that has no implementation raises, and says what to do instead. Opt in to gathering by the option
``fallback = "gather"``, which warns once per call site, up to ``fallback-max-bytes``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from distarray import config
from distarray.array.array import DistArray
from distarray.array.at_call import map_at_call
from distarray.array.dask_protocol import is_dask_array_type
from distarray.array.environment import within
from distarray.array.namespace import namespace
from distarray.array.out import hosted
from distarray.composed import ufuncs
from distarray.composed.collections import arrays_in
from distarray.composed.conversion import asarray
from distarray.composed.numpy_alternatives import way_out
from distarray.composed.numpy_arguments import Refused, call, own
from distarray.errors import NotSupportedError, warn_user
from distarray.expr.bind import check_mask
from distarray.expr.op import Op
from distarray.tables import format_nbytes

Function = Callable[..., Any]  # of any signature


@lru_cache(maxsize=1024)
def implementation(func: Function) -> Function | None:
    """Return the function of this package for one of numpy's: the public names are the table."""
    ours = namespace()
    name = getattr(func, "__name__", "")
    pairs = [
        (ours, np),
        (ours.linalg, np.linalg),
        (ours.fft, np.fft),
        (ours.emath, np.emath),
        (ours, np.lib.stride_tricks),
    ]
    if getattr(func, "__module__", "") == "numpy.polynomial.polynomial":  # loaded by who calls it only
        pairs.append((ours.polynomial.polynomial, np.polynomial.polynomial))
    for module, theirs in pairs:
        if name in module.__all__ and getattr(theirs, name, None) is func:
            function = own(getattr(module, name))
            return None if function is func else function
    return None


# -------------------------------------------------------------------------------------------------- functions


def array_function(
    x: DistArray, func: Function, types: Iterable[type], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Return what ``x.__array_function__`` does. Host data, and what creators make ``like=x``, lives where `x` does."""
    if not all(issubclass(kind, DistArray | np.ndarray) or is_dask_array_type(kind) for kind in types):
        return NotImplemented
    ours = implementation(func)
    if ours is None:
        return _fallback(func, _name_of(func), args, dict(kwargs))
    try:
        with within(x._env):
            return call(func, ours, args, kwargs)
    except Refused as refusal:
        return _fallback(func, f"{_name_of(func)} with these arguments ({refusal})", args, dict(kwargs))


def _name_of(func: Function) -> str:
    module = getattr(func, "__module__", "numpy")
    return f"{module}.{getattr(func, '__name__', func)}"


def _fallback(func: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gather if the user chose to, else say what to do."""
    arrays = list(arrays_in((args, kwargs)))
    nbytes = sum(x.nbytes for x in arrays)
    if config.get("fallback") != "gather":
        raise NotSupportedError(
            f"{name} is not implemented for DistArray; use {way_out(_name_of(func))}, or x.compute() "
            f"({format_nbytes(nbytes)}) for a NumPy array"
        )
    limit = config.get("fallback-max-bytes")
    if nbytes > limit:
        raise MemoryError(
            f"{name}: gathering {format_nbytes(nbytes)} is above fallback-max-bytes = {format_nbytes(limit)}"
        )
    frame = sys._getframe(3)
    site = (frame.f_code, frame.f_lasti)
    if site not in _warned:
        _warned.add(site)
        warn_user(f"{name} is not implemented for DistArray: gathering {format_nbytes(nbytes)}", UserWarning)
    result = func(*hosted(args), **{key: hosted(value) for key, value in kwargs.items()})
    return _boxed(arrays[0], result) if arrays else result


_warned: set[Any] = set()


def _boxed(like: DistArray, result: Any) -> Any:
    if isinstance(result, np.ndarray | np.generic) and result.dtype.kind in "biufcMm":
        return asarray(result, team=like.team, device=like.device)
    if type(result) in (list, tuple):
        return type(result)(_boxed(like, item) for item in result)
    return result


# ---------------------------------------------------------------------------------------------------- ufuncs


def array_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the ufunc for ``DistArray.__array_ufunc__``."""
    if not kwargs and method == "__call__" and (op := _operation(ufunc)) is not None:
        made = map_at_call(op, inputs)
        if made is not None:
            return made
    outs = kwargs.pop("out", ())
    for value in inputs:
        check_mask(value, ufunc.__name__)
    if any(is_dask_array_type(type(out)) for out in outs):
        raise TypeError(f"{ufunc.__name__}: out= is a dask.array, whose elements cannot be written; give a DistArray")
    for value in (*inputs, *outs, kwargs.get("where")):
        if not _is_known(value):
            return NotImplemented
    try:
        return ufuncs.apply(ufunc, method, inputs, outs, kwargs)
    except Refused as refusal:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        options = kwargs | ({"out": outs} if outs else {})
        return _fallback(getattr(ufunc, method), f"{name} ({refusal})", inputs, options)


@lru_cache(maxsize=1024)
def _operation(ufunc: np.ufunc) -> Op | None:
    """Return the elementwise operation that a call of a ufunc is, if it is one and no more."""
    try:
        return getattr(ufuncs.function_of(ufunc), "op", None)
    except Refused:
        return None


def _is_known(value: Any) -> bool:
    """Return whether an operand is ours, host data or a dask array: other types that know ufuncs go first."""
    if value is None or isinstance(value, DistArray | np.ndarray | np.generic | bool | int | float | complex):
        return True
    return not hasattr(type(value), "__array_ufunc__") or is_dask_array_type(type(value))
