"""Questions about dtypes: the standard's functions, answered by numpy; arrays count as their dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distarray.arguments import naming, shown
from distarray.array.array import DistArray
from distarray.dtypes import as_dtype
from distarray.types import DType


@dataclass(frozen=True, slots=True)
class FInfo:
    """An FInfo is the limits of a floating dtype, as Python floats, which the standard asks for; what numpy knows
    besides (``precision``, ``nmant`` ...) is as numpy has it.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    tiny: float
    resolution: float
    dtype: DType

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.finfo(self.dtype), name)


@dataclass(frozen=True, slots=True)
class IInfo:
    """An IInfo is the limits of an integer dtype, as Python ints."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") and not isinstance(x, type) else x


def finfo(type: Any, /) -> FInfo:
    """Return limits of a floating dtype; of a complex one those of its parts."""
    info = np.finfo(_dtype_of(type))
    return FInfo(
        int(info.bits),
        float(info.eps),
        float(info.max),
        float(info.min),
        float(info.smallest_normal),
        float(info.tiny),
        float(info.resolution),
        np.dtype(info.dtype),
    )


def iinfo(type: Any, /) -> IInfo:
    """Return limits of an integer dtype."""
    info = np.iinfo(_dtype_of(type))
    return IInfo(int(info.bits), int(info.max), int(info.min), np.dtype(info.dtype))


def can_cast(from_: Any, to: Any, /, casting: Any = "safe") -> bool:
    """Return whether numpy's rule `casting` lets one dtype become another."""
    if to is None:
        raise TypeError("to=None is no dtype")
    return bool(np.can_cast(_dtype_of(from_), as_dtype(to), casting))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind of the standard, or one of several."""
    return bool(np.isdtype(np.dtype(dtype), kind))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype to which arrays, dtypes and Python scalars promote together."""
    if not arrays_and_dtypes:
        raise ValueError("at least one array or dtype is required")
    given = [np.empty(0, x.dtype) if isinstance(x, DistArray) else x for x in arrays_and_dtypes]
    with naming(**{f"operand {i}": x for i, x in enumerate(given)}):
        return as_dtype(np.result_type(*given))


def promote_types(type1: Any, type2: Any) -> DType:
    """Return the smallest dtype that both cast to safely."""
    return as_dtype(np.promote_types(type1, type2))


def common_type(*arrays: Any) -> Any:  # a scalar type of numpy's
    """Return the inexact scalar type that holds the elements of all arrays."""
    for i, x in enumerate(arrays):
        if not hasattr(x, "dtype"):
            raise TypeError(f"common_type, operand {i}: {shown(x)} must be an array, not {type(x).__name__}")
    return np.common_type(*[np.empty(0, x.dtype) if isinstance(x, DistArray) else x for x in arrays])


def iscomplexobj(x: Any) -> bool:
    """Return whether `x` is of a complex dtype, whatever its elements are."""
    return x.dtype.kind == "c" if isinstance(x, DistArray) else bool(np.iscomplexobj(x))


def isrealobj(x: Any) -> bool:
    """Return whether `x` is of no complex dtype, whatever its elements are."""
    return not iscomplexobj(x)


def min_scalar_type(a: Any, /) -> DType:
    """Return the dtype of an array; of a number the smallest dtype that holds it, which an array without axes
    computes.
    """
    if isinstance(a, DistArray):
        if a.ndim:
            return a.dtype
        a = a._host()
    return np.min_scalar_type(a)
