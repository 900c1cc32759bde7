"""numpy's functions on DistArrays: ``np.add(x, y)`` is ``dx.add(x, y)``, and nothing gathers silently.

A function that has no implementation raises, and says what to do instead. Opt in to gathering by the option
``fallback = "gather"``, which warns once per call site, up to ``fallback-max-bytes``.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from distarray import config
from distarray.array import numpy_signatures
from distarray.array.array import DistArray
from distarray.array.capabilities import namespace
from distarray.array.out import into
from distarray.diagnostics.table import format_nbytes
from distarray.errors import NotSupportedError
from distarray.ops import elementwise, fft, linalg

__all__ = ["array_function", "array_ufunc", "implementations", "implements"]

Function = Callable[..., Any]  # of any signature

#: What ufuncs are called here where the names differ.
_UFUNC_NAMES = {"true_divide": "divide", "absolute": "abs", "conjugate": "conj", "power": "pow"}
_REDUCTIONS = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}
_ACCUMULATIONS = {np.add: "cumsum", np.multiply: "cumprod"}
_UPDATES = {
    np.add: "add",
    np.subtract: "subtract",
    np.multiply: "multiply",
    np.divide: "divide",
    np.power: "power",
    np.minimum: "min",
    np.maximum: "max",
}

#: numpy's mark of an argument that was not given.
_NOT_GIVEN = np._NoValue

_table: dict[Function, Function] = {}


def implements(*functions: Function) -> Callable[[Function], Function]:
    """Let a function be what these functions of numpy do on DistArrays."""

    def register(function: Function) -> Function:
        for each in functions:
            _table[each] = function
        return function

    return register


@lru_cache(maxsize=1)
def implementations() -> Mapping[Function, Function]:
    """The function of this package for each of numpy's: by name, and what `implements` says."""
    found: dict[Function, Function] = {}
    # The public names are the table.
    for module, theirs in ((namespace(), np), (linalg, np.linalg), (fft, np.fft)):
        for name in module.__all__:
            numpys = getattr(theirs, name, None)
            if callable(numpys) and not isinstance(numpys, type | np.ufunc) and hasattr(module, name):
                function = getattr(module, name)
                if function is not numpys:
                    found[numpys] = function
    return found | _table


# -------------------------------------------------------------------------------------------------- functions


def array_function(func: Function, types: Iterable[type], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What ``DistArray.__array_function__`` does."""
    for kind in types:
        if not issubclass(kind, DistArray | np.ndarray):
            return NotImplemented
    ours = implementations().get(func)
    if ours is None:
        return _fallback(func, _name_of(func), args, dict(kwargs))
    kwargs = {key: value for key, value in kwargs.items() if not (key == "like" or value is _NOT_GIVEN)}
    try:
        bound = _bound(ours, args, kwargs)
    except TypeError as error:
        return _fallback(func, f"{_name_of(func)} with these arguments ({error})", args, kwargs)
    return ours(*bound[0], **bound[1])


@lru_cache(maxsize=1024)
def _signature(function: Function) -> inspect.Signature:
    return inspect.signature(function)


def _bound(ours: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as our function takes them.

    numpy's name of the array may be a keyword there and a position here; keywords that say numpy's default of
    something we do not have are dropped.
    """
    parameters = _signature(ours).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    names = [
        name for name, p in parameters.items() if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    given = dict(kwargs)
    n_positional = sum(p.kind is p.POSITIONAL_ONLY for p in parameters.values())
    leading: list[Any] = list(args)
    for key in list(given):
        if key in names or takes_any:
            continue
        value = given.pop(key)
        if len(leading) < n_positional:
            leading.append(value)
        elif not _is_numpys_default(key, value):
            raise TypeError(f"no {key}= here")
    _signature(ours).bind(*leading, **given)
    return tuple(leading), given


def _is_numpys_default(key: str, value: Any) -> bool:
    defaults = {"out": None, "order": ("K", "C", "A", None), "subok": (True, False), "casting": "same_kind"}
    default = defaults.get(key, ())
    return value in default if isinstance(default, tuple) else value is default or value == default


def _name_of(func: Function) -> str:
    module = getattr(func, "__module__", "numpy")
    return f"{module}.{getattr(func, '__name__', func)}"


def _arrays(value: Any) -> list[DistArray]:
    if isinstance(value, DistArray):
        return [value]
    if isinstance(value, list | tuple):
        return [x for item in value for x in _arrays(item)]
    if isinstance(value, dict):
        return [x for item in value.values() for x in _arrays(item)]
    return []


def _hosted(value: Any) -> Any:
    if isinstance(value, DistArray):
        return value.compute()
    if isinstance(value, list | tuple):
        return type(value)(_hosted(item) for item in value)
    return value


def _fallback(func: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gather if the user chose to, else say what to do."""
    arrays = _arrays((args, kwargs))
    nbytes = sum(x.nbytes for x in arrays)
    if config.get("fallback") != "gather":
        raise NotSupportedError(
            f"{name} is not implemented for DistArray; use distarray.map_blocks, or x.compute() "
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
        warnings.warn(f"{name} is not implemented for DistArray: gathering {format_nbytes(nbytes)}", stacklevel=4)
    result = func(*_hosted(args), **{key: _hosted(value) for key, value in kwargs.items()})
    return _boxed(arrays[0], result) if arrays else result


_warned: set[Any] = set()


def _boxed(like: DistArray, result: Any) -> Any:
    if isinstance(result, np.ndarray | np.generic) and result.dtype.kind in "biufcMm":
        from distarray.array.conversion import asarray

        return asarray(result, team=like.team, device=like.device)
    if type(result) in (list, tuple):
        return type(result)(_boxed(like, item) for item in result)
    return result


# ---------------------------------------------------------------------------------------------------- ufuncs


def array_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``DistArray.__array_ufunc__`` does."""
    outs = kwargs.pop("out", ())
    for value in (*inputs, *outs):
        if not _is_known(value):
            return NotImplemented
    if method == "__call__":
        return _call(ufunc, inputs, outs, kwargs)
    if method == "reduce" and ufunc in _REDUCTIONS:
        function = getattr(numpy_signatures, _REDUCTIONS[ufunc])
        (x, *rest) = inputs
        axis = rest[0] if rest else kwargs.pop("axis", 0)
        options = {key: value for key, value in kwargs.items() if value is not _NOT_GIVEN}
        if ufunc in (np.logical_and, np.logical_or, np.maximum, np.minimum):
            options.pop("dtype", None)
        return into(outs or None, function(x, axis=axis, **options))
    if method == "accumulate" and ufunc in _ACCUMULATIONS:
        function = getattr(numpy_signatures, _ACCUMULATIONS[ufunc])
        (x, *rest) = inputs
        return into(outs or None, function(x, rest[0] if rest else kwargs.pop("axis", 0), kwargs.get("dtype")))
    if method == "outer" and len(inputs) == 2:
        x, y = (v if hasattr(v, "reshape") else np.asarray(v) for v in inputs)
        wide = x.reshape(x.shape + (1,) * y.ndim)
        return _call(ufunc, (wide, y), outs, kwargs)
    if method == "at" and ufunc in _UPDATES and isinstance(inputs[0], DistArray):
        x, index, *value = inputs
        x[...] = getattr(x.at[index], _UPDATES[ufunc])(*value)
        return None
    return _fallback(getattr(ufunc, method), f"numpy.{ufunc.__name__}.{method}", inputs, kwargs)


def _is_known(value: Any) -> bool:
    """Whether an operand is ours, or host data: other types that know ufuncs go first."""
    if value is None or isinstance(value, DistArray | np.ndarray | np.generic | bool | int | float | complex):
        return True
    return not hasattr(type(value), "__array_ufunc__")


def _function_for(ufunc: np.ufunc) -> Function | None:
    name = _UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__)
    if getattr(np, ufunc.__name__, None) is not ufunc:
        return None
    found = getattr(namespace(), name, None)
    return found if callable(found) else None


def _call(ufunc: np.ufunc, inputs: tuple[Any, ...], outs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function = _function_for(ufunc)
    where = kwargs.pop("where", True)
    dtype = kwargs.pop("dtype", None)
    casting = kwargs.pop("casting", "same_kind")
    kwargs.pop("order", None), kwargs.pop("subok", None)
    if function is None or kwargs:
        return _fallback(ufunc, f"numpy.{ufunc.__name__}", (*inputs, *outs), kwargs)
    if dtype is not None:
        inputs = tuple(_cast(v, np.dtype(dtype), casting) for v in inputs)
    made = function(*inputs)
    several = made if isinstance(made, tuple) else (made,)
    results = []
    for i, result in enumerate(several):
        out = outs[i] if i < len(outs) else None
        if where is not True and out is not None:
            result = elementwise.where(where, result, out)
        results.append(into(out, result))
    return results[0] if len(results) == 1 else tuple(results)


def _cast(value: Any, dtype: np.dtype[Any], casting: Any) -> Any:
    if not hasattr(value, "dtype") or value.dtype == dtype:
        return value
    if not np.can_cast(value.dtype, dtype, casting):
        raise TypeError(f"Cannot cast ufunc input from {value.dtype!r} to {dtype!r} with casting rule {casting!r}")
    return value.astype(dtype)
