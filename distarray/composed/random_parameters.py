"""Parameters of distributions: which values numpy takes, with its texts, and the shape of what is drawn.

A parameter is a number, host data, or a DistArray. The first two are checked at the call, and so are arrays that are
computed and here. The values of others are not known there: samplers that need it check them when they run, formulas
give nan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from distarray.arguments import check_cast, host_array, parse_shape
from distarray.array.array import DistArray
from distarray.array.handle import is_scalar
from distarray.ops import elementwise
from distarray.types import HostArray, Shape

#: A number, an array of the host, or an array.
Parameter: TypeAlias = Any

#: Of Poisson numbers: ten deviations above it, 64 bits still hold them.
LARGEST_MEAN = float(np.iinfo(np.int64).max) - 10.0 * float(np.iinfo(np.int64).max) ** 0.5

#: By name: what holds for every legal value, and numpy's text where it does not.
_CONDITIONS: dict[str, tuple[Callable[[HostArray], Any], str]] = {
    "any": (lambda v: True, ""),
    "non-negative": (lambda v: ~np.signbit(v) | np.isnan(v), "{} < 0"),
    "positive": (lambda v: ~(v <= 0), "{} <= 0"),
    "no nan": (lambda v: ~np.isnan(v), "{} must not be NaN"),
    "in [0, 1]": (lambda v: (v >= 0) & (v <= 1), "{0} < 0, {0} > 1 or {0} {1}"),
    "in (0, 1]": (lambda v: (v > 0) & (v <= 1), "{0} <= 0, {0} > 1 or {0} contains NaNs"),
    "in [0, 1)": (lambda v: (v >= 0) & (v < 1), "{0} < 0, {0} >= 1 or {0} {1}"),
    "above 1": (lambda v: v > 1, "{0} <= 1 or {0} {1}"),
    "mean": (lambda v: v >= 0, "{0} < 0 or {0} {1}"),
}


def parameter(name: str, value: Parameter, condition: str = "any", *, of_formula: bool = False) -> Parameter:
    """Return a parameter as a float, or as an array of double precision; `of_formula`, which checks nothing when it
    runs: with nan where it turns out then not to fulfil the condition.

    Raises
    ------
    ValueError
        If it is known and does not fulfil the condition, a key of the table above.
    """
    if type(value) is float:
        _check_number(name, value.hex(), condition)  # two zeros are equal, and not the same
        return value
    if isinstance(value, int):
        value = float(value)  # an array of one that 64 bits do not hold is of objects
    if isinstance(value, DistArray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"{name} of {value.dtype} must be real numbers")
        value = value if value.dtype == np.float64 else value.astype(np.float64)
        if (values := known(value)) is not None:
            _check(name, values[0], condition)
        elif of_formula:
            value = legal(value, _CONDITIONS[condition][0](value))
        return value
    if isinstance(value, str | bytes | list | tuple) and (text := np.asarray(value)).dtype.kind in "SU":
        text.astype(np.float64)  # numpy's error where it is the text of no number
    array = host_array(value, name, kinds="biuf")  # whatever becomes a float is no number yet: None becomes nan
    array = array.astype(np.float64, copy=False)
    _check(name, array, condition)
    return array if array.ndim else float(array)


def legal(value: DistArray, holds: Any) -> DistArray:
    """Return an array with nan where a condition does not hold: numpy raises, where it is known at the call."""
    made: DistArray = elementwise.where(holds, value, np.nan)
    return made


def whole_parameter(name: str, value: Parameter, condition: str) -> Parameter:
    """Return a parameter that counts something, without what stands behind the point.

    Raises
    ------
    TypeError
        If it is an array whose dtype is not cast safely to integers of 64 bits, as numpy says of arrays alone.
    ValueError
        If it is no number, or does not fulfil the condition; OverflowError if 64 bits do not hold it.
    """
    is_array = isinstance(value, np.ndarray) or (isinstance(value, DistArray) and not is_scalar(value))
    if is_array:
        check_cast(value.dtype, np.int64, name=name)
    given = parameter(name, value, "any")
    if (values := known(given)) is not None:
        if np.any(np.isnan(values[0])):
            raise ValueError(f"{name}: cannot convert float NaN to integer")
        if np.any(np.abs(values[0]) >= 2.0**63):
            raise OverflowError(f"{name}: Python int too large to convert to C long")
    if not is_array:
        given = elementwise.trunc(given) + 0.0 if isinstance(given, DistArray) else np.trunc(given) + 0.0  # no -0.0
    return parameter(name, given, condition)


def known(*parameters: Parameter) -> list[Any] | None:
    """Return the values of parameters, numbers or arrays of the host; None where some are not computed, or not here."""
    values = [_ready(p) if isinstance(p, DistArray) else p for p in parameters]
    return None if any(v is None for v in values) else values


def _ready(x: DistArray) -> HostArray | None:
    """Return what is held of an array; None of one that repeats it: no memory bounds how many elements that has."""
    block = x._ready()
    is_repeated = block is not None and any(n > 1 and not stride for n, stride in zip(block.shape, block.strides))
    return None if is_repeated else block


@lru_cache(maxsize=256)
def _check_number(name: str, value: str, condition: str) -> None:
    """Check a number as `_check` does; what a loop draws with again was found good before."""
    _check(name, np.asarray(float.fromhex(value)), condition)


def _check(name: str, array: HostArray, condition: str) -> None:
    holds, text = _CONDITIONS[condition]
    if not np.all(holds(array)):
        raise ValueError(text.format(name, "contains NaNs" if array.ndim else "is NaN"))
    if condition == "mean" and np.any(array > LARGEST_MEAN):
        raise ValueError(f"{name} value too large")


def drawn_shape(size: Any, *parameters: Parameter) -> Shape:
    """Return the shape of what is drawn: `size`, to which the parameters broadcast, or the shape of these."""
    shapes = [p.shape if hasattr(p, "shape") else np.shape(p) for p in parameters if type(p) is not float]
    own = np.broadcast_shapes(*shapes) if shapes else ()
    if size is None:
        return own
    shape = parse_shape(size, "size")
    if own:
        try:
            is_compatible = np.broadcast_shapes(own, shape) == shape
        except ValueError:
            is_compatible = False
        if not is_compatible:
            raise ValueError(f"Output size {shape} is not compatible with broadcast dimensions of inputs {own}.")
    return shape
