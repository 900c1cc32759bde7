"""Arrays with what numpy's names require of them: finite elements, a memory order, memory of their own."""

from __future__ import annotations

from typing import Any

from distarray.arguments import sequence, shown
from distarray.array.array import DistArray
from distarray.composed.conversion import asarray
from distarray.ops import elementwise
from distarray.types import DTypeLike


def asarray_chkfinite(a: Any, dtype: DTypeLike = None, order: Any = None, **where: Any) -> DistArray:
    """Return `a` as an array, if no element is nan or infinite: computes it.

    Raises
    ------
    ValueError
        If one is.
    """
    made = asarray(a, dtype, order=order, **where)
    if made.dtype.kind in "fc" and not bool(elementwise.isfinite(made).all()):
        raise ValueError("array must not contain infs or NaNs")
    return made


#: What numpy's ``require`` may ask for, by its names: blocks are aligned, own their memory or can be copied.
_REQUIREMENTS = {
    **dict.fromkeys(("C", "C_CONTIGUOUS", "CONTIGUOUS"), "C"),
    **dict.fromkeys(("F", "F_CONTIGUOUS", "FORTRAN"), "F"),
    **dict.fromkeys(("W", "WRITEABLE"), "W"),
    **dict.fromkeys(("O", "OWNDATA"), "O"),
    **dict.fromkeys(("A", "ALIGNED", "E", "ENSUREARRAY"), ""),
}


def require(a: Any, dtype: DTypeLike = None, requirements: Any = None, **where: Any) -> DistArray:
    """Return `a` as an array with what numpy's names require: blocks in ``C`` or ``F`` order, own and writable
    memory.
    """
    names = [requirements] if isinstance(requirements, str) else sequence(requirements or (), "requirements", "names")
    unknown = [name for name in names if not isinstance(name, str) or name.upper() not in _REQUIREMENTS]
    if unknown:
        raise KeyError(f"requirements={shown(requirements)}: there is no {unknown[0]!r}")
    wanted = {_REQUIREMENTS[name.upper()] for name in names}
    if wanted >= {"C", "F"}:
        raise ValueError('Cannot specify both "C" and "F" order')
    made = asarray(a, dtype, copy=True if wanted & {"W", "O"} and getattr(a, "_readonly", False) else None, **where)
    if ("C" in wanted and not made.flags.c_contiguous) or ("O" in wanted and made.base is not None):
        made = made.copy()
    return made._in_order("F") if "F" in wanted else made
