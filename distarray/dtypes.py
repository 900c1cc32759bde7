"""The dtypes that a DistArray may have, and their short notation.

``f64``, ``c128``, ``i8`` count bits; ``M8[ns]`` and ``m8[ns]`` are numpy's datetime64 and timedelta64. The
notation is the one of types in text: ``f64[8{x}256, 1024]``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.arguments import shown

_BITS = {"i": (8, 16, 32, 64), "u": (8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128)}
_NUMBERS = [np.dtype(f"{kind}{bits // 8}") for kind, sizes in _BITS.items() for bits in sizes]
#: Units of time spans, each a thousand of the next.
_THOUSANDS = ("s", "ms", "us", "ns", "ps", "fs", "as")


@lru_cache(maxsize=256)
def _coarsest(dtype: np.dtype) -> np.dtype:
    """Return a dtype of dates or time spans with whole thousands of a unit in the larger one: ``m8[7000ms]`` is
    ``m8[7s]``.
    """
    unit, n = np.datetime_data(dtype)
    while unit in _THOUSANDS[1:] and n % 1000 == 0:
        unit, n = _THOUSANDS[_THOUSANDS.index(unit) - 1], n // 1000
    return np.dtype(f"{dtype.char}8" if unit == "generic" else f"{dtype.char}8[{n}{unit}]")


def cast_dtype(held: np.dtype, wanted: np.dtype) -> np.dtype:
    """Return the dtype of elements of one dtype that are cast to another one: dates and time spans of no unit take the
    unit of those that are cast.

    >>> cast_dtype(np.dtype("m8[s]"), np.dtype("m8"))
    dtype('<m8[s]')
    """
    if wanted.kind not in "mM" or held.kind not in "mM" or np.datetime_data(wanted)[0] != "generic":
        return wanted
    return CANONICAL[np.empty(0, held).astype(wanted).dtype]  # type: ignore[no-any-return]  # of one dtype one


class _Canonical(dict[Any, Any]):  # by a dtype, or a tuple of those of several results
    """A _Canonical gives the dtype that stands for all that equal it: ``longlong`` is ``int64``, and so is one that has
    metadata. What is looked up by a dtype would else hold the one that came first; of time spans numpy even says that
    ``m8[7000ms]`` equals ``m8[7s]``, and not the other way round.
    """

    def __missing__(self, dtype: Any) -> Any:
        if type(dtype) is tuple:
            return tuple([self[each] for each in dtype])
        return _coarsest(dtype) if dtype.kind in "mM" else dtype


#: Those of numbers and truth values are at hand.
CANONICAL = _Canonical({d: d for d in [np.dtype(bool), *_NUMBERS]})

_TEXT = "codes of text: values, codes = numpy.unique(text, return_inverse=True)"
#: What to do with the kinds of dtype that no array here has.
_WAYS_OUT = {
    "U": _TEXT,
    "S": _TEXT,
    "T": _TEXT,
    "O": f"numbers: numpy.asarray(objects, dtype=float), or {_TEXT}",
    "V": "an array of each field: {name: dx.asarray(records[name]) for name in records.dtype.names}",
}
#: Kinds of NumPy's dtypes that are none of numbers, truth values or dates.
FOREIGN = frozenset(_WAYS_OUT)


@lru_cache(maxsize=1024)
def _checked(dtype: np.dtype) -> np.dtype:
    if dtype.kind in "bMm":
        return CANONICAL[dtype]  # type: ignore[no-any-return]  # of one dtype one
    if dtype.kind in _BITS and dtype.itemsize * 8 in _BITS[dtype.kind]:
        return CANONICAL[dtype.newbyteorder("=")]  # type: ignore[no-any-return]
    way_out = _WAYS_OUT.get(dtype.kind, "x.astype(...) to one of these")
    raise TypeError(
        f"{dtype!r} is not supported by distarray; supported are bool, signed and unsigned integers, "
        f"float16/32/64, complex64/128, datetime64 and timedelta64; use {way_out}"
    )


def as_dtype(spec: object) -> np.dtype:
    """Return the numpy dtype meant by `spec`, in native byte order; of equal ones always the same.

    Parameters
    ----------
    spec
        Whatever ``numpy.dtype`` accepts, or the notation (``"f64"`` is *not* numpy's; use `parse_notation`).

    Raises
    ------
    TypeError
        If numpy does not know the dtype or distarray does not support it (objects, strings, structures,
        longdouble).
    """
    if getattr(spec, "shape", None) is not None and not isinstance(spec, (np.dtype, type)):
        raise TypeError(f"dtype={shown(spec)} must be a dtype, not an array")
    try:
        return _checked(np.dtype(spec))  # type: ignore[call-overload]  # numpy raises TypeError itself
    except TypeError as error:
        if isinstance(spec, np.dtype):
            raise  # of an array, and named by `_checked`
        if isinstance(spec, dict):
            raise TypeError(f"dtype={shown(spec)} must be a dtype of numbers, not a structure") from None
        raise TypeError(f"dtype={shown(spec)}: {error}") from None
    except ValueError as error:  # numpy's of tuples and dicts that say no fields
        raise ValueError(f"dtype={shown(spec)}: {error}") from None


def notation(dtype: np.dtype) -> str:
    """Return the short name of a supported dtype.

    >>> notation(np.dtype("float64")), notation(np.dtype("complex64")), notation(np.dtype(bool))
    ('f64', 'c64', 'bool')
    >>> notation(np.dtype("datetime64[ns]"))
    'M8[ns]'
    """
    if dtype.kind == "b":
        return "bool"
    if dtype.kind in "Mm":
        return dtype.str[1:]
    return f"{dtype.kind}{dtype.itemsize * 8}"


@lru_cache(maxsize=256)
def parse_notation(text: str) -> np.dtype:
    """Return the dtype written as `text` in a type; the inverse of `notation`.

    >>> parse_notation("f32"), parse_notation("m8[s]")
    (dtype('float32'), dtype('<m8[s]'))
    """
    if text == "bool":
        return np.dtype(bool)
    if text[:2] in ("M8", "m8"):
        return np.dtype(text)
    kind, bits = text[:1], text[1:]
    if kind in _BITS and bits.isdigit() and int(bits) in _BITS[kind]:
        return np.dtype(f"{kind}{int(bits) // 8}")
    raise TypeError(
        f"{text!r} is not the notation of a dtype; write bool, i8..i64, u8..u64, f16, f32, f64, c64, c128, "
        "M8[unit] or m8[unit]"
    )
