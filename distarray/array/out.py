"""``out=``: writing a result into an array that exists, ours or numpy's.

An array of numpy is filled tile by tile once the result is computed. Functions whose first argument is written into
(``put``, ``copyto``) are numpy's own on an array of numpy, with what is written brought here: `writes_host`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from distarray.arguments import shown
from distarray.array import elements
from distarray.array.by_numpy import update_by_numpy
from distarray.array.handle import Handle
from distarray.expr.broadcasting import broadcast_shapes
from distarray.ops.elementwise import astype
from distarray.types import DType

P = ParamSpec("P")
R = TypeVar("R")


def check_out(
    out: Any, result: Any, *, casting: Any = "same_kind", name: str | None = None, broadcasts: bool = False
) -> None:
    """Raise what numpy raises where `result` cannot be written into `out`.

    Parameters
    ----------
    casting
        How the result may be cast: numpy's reductions cast to anything.
    name
        Of the function, for the text of errors.
    broadcasts
        Whether the result may have fewer elements than `out`: numpy's elementwise functions broadcast it.

    Raises
    ------
    TypeError
        If `out` is no array, or the result does not cast to its dtype.
    ValueError
        If the shapes differ, or `out` is read-only.
    """
    is_host = isinstance(out, np.ndarray)
    if not is_host and not hasattr(type(out), "__dx_node__"):
        raise TypeError(f"out={shown(out)} must be a DistArray or a numpy array, not {type(out).__name__}")
    if not out.flags.writeable if is_host else out._readonly:
        raise ValueError("output array is read-only")
    if not np.can_cast(result.dtype, out.dtype, casting) or out.dtype.kind not in "biufcmM":
        what = "the result" if name is None else f"ufunc {name!r} output"
        raise TypeError(f"Cannot cast {what} from {result.dtype!r} to {out.dtype!r} with casting rule {casting!r}")
    if casting == "unsafe" and not broadcasts and {result.dtype.kind, out.dtype.kind} & {"m", "M"}:
        check_written(result.dtype, out.dtype)
    if out.shape != result.shape:
        if not broadcasts:
            raise ValueError(
                f"output parameter has the shape {out.shape}, but the result has {result.shape}; they must be the same"
            )
        if broadcast_shapes(out.shape, result.shape) != out.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast shape "
                f"{result.shape}"
            )


def check_written(given: DType, among: DType) -> None:
    """Raise what numpy raises where elements of one dtype are not written among those of another: it asks numpy, of two
    dates or time spans, whether a unit gets lost.
    """
    np.empty(1, among)[...] = np.zeros(1, given)


def into(out: Any, result: Any, *, casting: Any = "same_kind", broadcasts: bool = False) -> Any:
    """Return `result`, written into `out` if there is one; see `check_out`. Returns what the caller returns."""
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if out is None:
        return result
    check_out(out, result, casting=casting, broadcasts=broadcasts)
    if isinstance(out, np.ndarray):
        elements.fetch_into(result.__dx_node__(), out)
    else:
        out[...] = result if result.dtype == out.dtype else astype(result, out.dtype)
    return out


def into_copied(out: Any, result: Any) -> Any:
    """Return `result` of a function that copies elements, written into `out` if numpy's own casts so, as it is here."""
    if out is not None and hasattr(out, "dtype"):
        np.take(np.zeros(1, result.dtype), [0], out=np.zeros(1, out.dtype))  # which casts differs by its version
    return into(out, result, casting="unsafe")


def hosted(value: Any) -> Any:
    """Return an argument with the arrays in it, also in lists and tuples, brought here."""
    if hasattr(type(value), "__dx_node__"):
        return value.compute()
    if isinstance(value, list | tuple):
        return type(value)([hosted(item) for item in value])
    return value


def writes_host(theirs: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function that writes into its first argument: `theirs` does it for arrays of numpy, and
    for small ones of ours that are here; and refuses what is no array.
    """

    def register(ours: Callable[P, R]) -> Callable[P, R]:
        first = next(iter(signature(ours).parameters))

        @wraps(ours)
        def function(*args: P.args, **kwargs: P.kwargs) -> R:
            target: Any = args[0] if args else kwargs.get(first)
            if isinstance(target, Handle):
                if args and update_by_numpy(theirs, target, args[1:], kwargs):
                    return None  # type: ignore[return-value]  # as numpy's
                return ours(*args, **kwargs)
            given = {name: hosted(value) for name, value in kwargs.items() if name != first}
            return theirs(target, *hosted(args[1:]), **given)  # type: ignore[no-any-return]  # numpy's

        return function

    return register
