"""``out=``: writing a result into an array that exists."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_out", "into", "into_copied"]


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
        If `out` is no DistArray, or the result does not cast to its dtype.
    ValueError
        If the shapes differ, or `out` is read-only.
    """
    if not hasattr(type(out), "__dx_node__"):
        raise TypeError(
            f"out must be a DistArray, not {type(out).__name__}; for a numpy array assign out[...] = x.compute()"
        )
    if out._readonly:
        raise ValueError("output array is read-only")
    if not np.can_cast(result.dtype, out.dtype, casting):
        what = "the result" if name is None else f"ufunc {name!r} output"
        raise TypeError(f"Cannot cast {what} from {result.dtype!r} to {out.dtype!r} with casting rule {casting!r}")
    if out.shape != result.shape:
        if not broadcasts:
            raise ValueError(
                f"output parameter has the shape {out.shape}, but the result has {result.shape}; they must be the same"
            )
        if np.broadcast_shapes(out.shape, result.shape) != out.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast shape "
                f"{result.shape}"
            )


def into(
    out: Any, result: Any, *, casting: Any = "same_kind", name: str | None = None, broadcasts: bool = False
) -> Any:
    """Return `result`, written into `out` if there is one; see `check_out`. Returns what the caller returns."""
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if out is None:
        return result
    check_out(out, result, casting=casting, name=name, broadcasts=broadcasts)
    out[...] = result if result.dtype == out.dtype else result.astype(out.dtype)
    return out


def into_copied(out: Any, result: Any) -> Any:
    """Return `result` of a function that copies elements: numpy fills a copy of `out` that has the elements' dtype."""
    if out is not None and hasattr(out, "dtype") and not np.can_cast(out.dtype, result.dtype, "safe"):
        raise TypeError(
            f"Cannot cast array data from {out.dtype!r} to {result.dtype!r} according to the rule 'safe': out has "
            "to have the dtype of the elements"
        )
    return into(out, result, casting="unsafe")
