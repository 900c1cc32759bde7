"""What a saved state says about its values, as JSON: plain values as they are, everything else by a row of a table.

Values are encoded before anything runs, so what cannot be saved is refused first. Arrays are put aside by number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from distarray.array.array import DistArray
from distarray.composed.random import Generator
from distarray.errors import NotSupportedError

#: Types that JSON has, and gives back as they were.
_PLAIN = (type(None), bool, int, str)
#: Bits of an integer that JSON has: Python reads and writes no more than 4300 digits of decimals.
_MAX_BITS = 1 << 12
#: Kinds of numpy's dtypes whose elements are their bytes.
_BYTES = "biufcmMSU"


class Arrays(NamedTuple):
    """The Arrays of a state are what its values refer to by number; one that is named twice is there once."""

    distributed: list[DistArray]
    host: list[np.ndarray[Any, Any]]


class _Kind(NamedTuple):
    """A _Kind says how values of a type become JSON and come back; both are given what turns the parts of a value."""

    type: type
    encode: Callable[[Any, Callable[[Any], Any], Arrays], Any]
    decode: Callable[[Any, Callable[[Any], Any], Arrays], Any]


def _number(array: Any, among: list[Any]) -> int:
    """Return the number of an array among others, where it is put if it is new."""
    found = next((n for n, other in enumerate(among) if other is array), None)
    if found is None:
        among.append(array)
        return len(among) - 1
    return found


def _generator(data: Any) -> Generator:
    generator = Generator(0)
    generator.bit_generator.state = data
    return generator


def _numpy_generator(data: Any) -> np.random.Generator:
    words: Any = getattr(np.random, data["bit_generator"])()
    words.state = data
    return np.random.Generator(words)


def _scalar(data: Any) -> Any:
    dtype, text = np.dtype(data[0]), data[1]
    # Text without characters has no bytes, and no array of such a dtype.
    return np.frombuffer(bytes.fromhex(text), dtype)[0] if dtype.itemsize else dtype.type()


#: The rows, by the name under which they stand in a file.
_KINDS: dict[str, _Kind] = {
    "array": _Kind(
        DistArray,
        lambda value, inner, arrays: _number(value, arrays.distributed),
        lambda data, inner, arrays: arrays.distributed[data],
    ),
    "numpy": _Kind(
        np.ndarray,
        lambda value, inner, arrays: _number(value, arrays.host),
        lambda data, inner, arrays: arrays.host[data],
    ),
    "integer": _Kind(int, lambda value, *_: hex(value), lambda data, *_: int(data, 16)),  # a large one
    "float": _Kind(float, lambda value, *_: repr(value), lambda data, *_: float(data)),  # JSON has no nan, no infinity
    "complex": _Kind(
        complex, lambda value, *_: [repr(value.real), repr(value.imag)], lambda data, *_: complex(*map(float, data))
    ),
    "bytes": _Kind(bytes, lambda value, *_: value.hex(), lambda data, *_: bytes.fromhex(data)),
    "tuple": _Kind(tuple, lambda value, inner, _: [*map(inner, value)], lambda data, inner, _: tuple(map(inner, data))),
    "dict": _Kind(
        dict,
        lambda value, inner, _: [[inner(key), inner(item)] for key, item in value.items()],
        lambda data, inner, _: {inner(key): inner(item) for key, item in data},
    ),
    "generator": _Kind(Generator, lambda value, *_: value.bit_generator.state, lambda data, *_: _generator(data)),
    "numpy generator": _Kind(
        np.random.Generator,
        lambda value, inner, _: inner(value.bit_generator.state),
        lambda data, inner, _: _numpy_generator(inner(data)),
    ),
}
_NAME_OF: Mapping[type, str] = {kind.type: name for name, kind in _KINDS.items()}


def encoded(value: Any, where: str, arrays: Arrays) -> Any:
    """Return a value as JSON has it.

    Parameters
    ----------
    where
        How the user called it, for errors.
    arrays
        Grows by the arrays in the value.

    Raises
    ------
    TypeError
        If it would not come back as it is.
    """
    kind = type(value)
    is_large = kind is int and value.bit_length() > _MAX_BITS
    if (kind in _PLAIN and not is_large) or (kind is float and isfinite(value)):
        return value
    if kind is list:
        return [encoded(item, f"{where}[{n}]", arrays) for n, item in enumerate(value)]
    if isinstance(value, np.generic) and value.dtype.kind in _BYTES:
        return {"numpy scalar": [value.dtype.str, value.tobytes().hex()]}
    name = _NAME_OF.get(kind)
    if name is None or (kind is np.ndarray and value.dtype.hasobject):
        what = "a numpy array of objects" if kind is np.ndarray else f"a {kind.__name__}"
        raise NotSupportedError(
            f"save_state: {where} is {what}, which would not come back as it is; a state has DistArrays, numpy arrays "
            "and scalars, random Generators, numbers, text, bytes, None, and lists, tuples and dicts of these"
        )
    return {name: _KINDS[name].encode(value, lambda part: encoded(part, f"a part of {where}", arrays), arrays)}


def decoded(data: Any, arrays: Arrays) -> Any:
    """Return the value that `encoded` made this of."""
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [decoded(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    ((name, inner),) = data.items()
    if name == "numpy scalar":
        return _scalar(inner)
    return _KINDS[name].decode(inner, lambda part: decoded(part, arrays), arrays)
