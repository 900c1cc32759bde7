"""Namespaces of arrays: what kernels call them and their blocks, and what the strict one spells in its own way.

A kernel gets the namespace of its blocks and uses the standard's functions. ``array_api_strict`` has no others, and
names dtypes and devices by objects of its own.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from distarray.errors import NotSupportedError
from distarray.types import DType

#: An array of any backend, and a namespace of functions on them: backends share no base class.
Block: TypeAlias = Any
Namespace: TypeAlias = Any
Params: TypeAlias = tuple[Any, ...]


def is_strict(xp: Namespace) -> bool:
    """Return whether `xp` has the standard's functions and nothing else."""
    return getattr(xp, "__name__", "") == "array_api_strict"


def dtype_of(xp: Namespace, dtype: DType) -> Any:
    """Return `dtype` as the namespace spells it."""
    if not is_strict(xp):
        return dtype
    if not hasattr(xp, dtype.name):
        raise NotSupportedError(f"not on strict: the standard has no dtype {dtype.name}")
    return getattr(xp, dtype.name)


def astype(xp: Namespace, x: Block, dtype: DType) -> Block:
    """Return `x` in a dtype: itself where it has that one."""
    wanted = dtype_of(xp, dtype)
    return x if x.dtype == wanted else xp.astype(x, wanted)


def placed(xp: Namespace, like: Any) -> dict[str, Any]:
    """Return where a new array goes, as a keyword: to a backend or beside a block; others have one place at a time."""
    return {"device": like.device} if is_strict(xp) else {}


def indices(backend: Any, start: int, stop: int, step: int = 1) -> Block:
    """Return whole numbers of 64 bits where a backend has its blocks, from `start` on."""
    return backend.xp.arange(start, stop, step, dtype=backend.xp.int64, **placed(backend.xp, backend))


def loop_dtype(dtype: DType) -> DType | None:
    """Return what chooses a ufunc's loop: none that has a unit, numpy takes that from the operand."""
    return None if dtype.kind in "mM" else dtype
