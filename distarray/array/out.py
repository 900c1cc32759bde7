"""``out=``: writing a result into an array that exists."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["into"]


def into(out: Any, result: Any) -> Any:
    """`result`, written into `out` if there is one. Returns what the caller returns.

    Raises
    ------
    TypeError
        If `out` is no DistArray, or the result does not cast to its dtype.
    ValueError
        If the shapes differ.
    """
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if out is None:
        return result
    if not hasattr(type(out), "__dx_node__"):
        raise TypeError(
            f"out must be a DistArray, not {type(out).__name__}; for a numpy array assign out[...] = x.compute()"
        )
    if out.shape != result.shape:
        raise ValueError(
            f"output parameter has the shape {out.shape}, but the result has {result.shape}; they must be the same"
        )
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast the result from {result.dtype!r} to out's {out.dtype!r} with casting rule 'same_kind'"
        )
    out[...] = result
    return out
