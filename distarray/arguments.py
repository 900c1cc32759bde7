"""The one door for integers, axes, shapes, counts, choices and flags that the user writes.

Each function takes what was given and the name of the argument, and returns what the code behind it works with. What is
refused is refused with numpy's class of error, in a text with the name and the value. A leaf: every layer that has
arguments imports it. The cost of an argument that is right is a fraction of a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any, TypeVar

import numpy as np

from distarray.types import Axes, DType, DTypeLike, HostArray, Shape

T = TypeVar("T")

#: Types that are refused as sequences, though they can be iterated over: bytes give integers, mappings and sets keys.
_NO_SEQUENCES = (str, bytes, bytearray, Mapping, set, frozenset)
#: The largest signed integer of 64 bits: numpy counts elements and bytes in them.
MAX_COUNT = 2**63 - 1
#: Axes that an array of numpy's can have.
MAX_NDIM = 64
#: What ``initial=``, ``keepdims=``, ``mean=`` and ``where=`` are when they are not given: numpy tells that from None,
#: False and True.
NOT_GIVEN: Any = np._NoValue  # numpy's own, so that its defaults pass through


def shown(value: Any) -> str:
    """Return `value` as it stands in the text of an error: short, in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_cast(
    given: DType, wanted: DType | type[np.generic], casting: Any = "safe", *, name: str | None = None
) -> None:
    """Raise numpy's error where elements of one dtype are not cast to another one by a rule; `name` is the argument."""
    if not np.can_cast(given, wanted, casting):
        whose = "" if name is None else f"{name}: "
        raise TypeError(
            f"{whose}Cannot cast array data from {given!r} to {np.dtype(wanted)!r} according to the rule {casting!r}"
        )


def integer(value: Any, name: str, *, truths: bool = True) -> int:
    """Return an int, from anything that has an index; with `truths` from True and False too.

    Raises
    ------
    TypeError
        If it is no integer.

    Examples
    --------
    >>> integer(1.5, "k")
    Traceback (most recent call last):
    TypeError: k=1.5 must be an integer, not float
    """
    try:
        if truths or type(value) is not bool:
            return index(value)
    except TypeError:
        pass
    raise TypeError(f"{name}={shown(value)} must be an integer, not {type(value).__name__}") from None


def diagonal(k: Any, less: int = 0) -> int:
    """Return the number of a diagonal, `less` before the one that is named. Its fraction is dropped, as by numpy's
    triangles; of what is then between 0 and 1 they make none.
    """
    if isinstance(k, float) and math.isfinite(k) and not less < k < less + 1:
        return int(k - less)
    return integer(k, "k") - less


def count(value: Any, name: str, *, truths: bool = True) -> int:
    """Return an integer that is not negative, and that C can hold; with `truths` from True and False too.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is negative.
    OverflowError
        If it is above 2**63 - 1.
    """
    n = integer(value, name, truths=truths)
    if n < 0:
        raise ValueError(f"{name}={n} is negative")
    if n > MAX_COUNT:
        raise OverflowError(f"{name}={n} is too large: it does not fit 64 bits")
    return n


def integers(value: Any, name: str, *, truths: bool = True) -> tuple[int, ...]:
    """Return integers, from one of them or a sequence; with `truths` from True and False too.

    Raises
    ------
    TypeError
        If it is neither.
    """
    items: Any
    if type(value) is tuple:
        items = value
    elif hasattr(value, "__index__") and not getattr(value, "ndim", 0):
        return (integer(value, name, truths=truths),)
    elif isinstance(value, _NO_SEQUENCES) or not (hasattr(value, "__iter__") and hasattr(value, "__len__")):
        raise TypeError(
            f"{name}={shown(value)} must be an integer or a sequence of integers, not {type(value).__name__}"
        )
    else:
        items = value
    try:
        if truths or bool not in map(type, items):
            return tuple([index(n) for n in items])
    except TypeError:
        pass
    raise TypeError(f"{name}={shown(value)} must be an integer or a sequence of integers") from None


def normalize_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """Return `axis` counted from the front.

    Raises
    ------
    TypeError
        If it is no integer.
    AxisError
        numpy's, a ValueError and an IndexError: if there is no such axis.
    OverflowError
        If it does not fit 64 bits.
    """
    n = axis if type(axis) is int else integer(axis, name)
    if not -ndim <= n < ndim:
        if not -MAX_COUNT <= n <= MAX_COUNT:
            raise OverflowError(f"{name}={n} is too large for an axis of an array of dimension {ndim}")
        raise np.exceptions.AxisError(n, ndim, name)
    return n + ndim if n < 0 else n


def normalize_axes(axis: Any, ndim: int, name: str = "axis") -> Axes:
    """Return the axes counted from the front, distinct; None means all of them.

    Raises
    ------
    TypeError
        If it is neither an integer nor a sequence of integers.
    AxisError
        numpy's, a ValueError and an IndexError: if there is no such axis.
    OverflowError
        If one does not fit 64 bits.
    ValueError
        If one is there twice.
    """
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int:
        return (normalize_axis(axis, ndim, name),)
    axes = tuple([normalize_axis(a, ndim, name) for a in (axis if type(axis) is tuple else integers(axis, name))])
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: duplicate axis in {shown(axis)} of an array of rank {ndim}")
    return axes


#: Types of what has an index, or several, and is no axis for numpy's reductions.
_LOOSE_AXES = frozenset({list, bool, np.bool})


def refuse_loose_axis(axis: Any) -> None:
    """Raise numpy's TypeError for a list or an array of axes and for truth values, which only some of its functions
    take.
    """
    kind = type(axis)
    if kind is tuple:
        integers(axis, "axis", truths=False)
    elif kind is not int and (kind in _LOOSE_AXES or getattr(axis, "ndim", None)):
        raise TypeError(f"axis={shown(axis)} must be an integer or a tuple of integers, not {type(axis).__name__}")


def reduced_axes(axis: Any, ndim: int, *, of_numbers: bool = True) -> tuple[int, ...]:
    """Return the axes along which one of numpy's reductions goes, counted from the first; with `of_numbers` an array
    without axes may be reduced along the one that it would have.
    """
    is_one = isinstance(axis, int | np.integer) and not isinstance(axis, bool)
    if of_numbers and not ndim and is_one and axis in (0, -1):
        return ()
    refuse_loose_axis(axis)
    return normalize_axes(axis, ndim)


def check_ndim(ndim: int, error: type[Exception] = ValueError) -> None:
    """Raise numpy's `error` where an array would have more axes than its arrays can have."""
    if ndim > MAX_NDIM:
        raise error(f"maximum supported dimension for an ndarray is {MAX_NDIM}, found {ndim}")


def parse_shape(shape: Any, name: str = "shape") -> Shape:
    """Return the extents of an array that is made: an integer is one axis.

    Raises
    ------
    TypeError
        If it is neither an integer nor a sequence of integers.
    ValueError
        If one is negative, or no array has so many axes or elements; as in numpy, extents of zero do not count in this.
    """
    dims = integers(shape, name, truths=False)
    check_ndim(len(dims))
    if dims and min(dims) < 0:
        raise ValueError(f"negative dimensions are not allowed: {name}={shown(shape)}")
    if math.prod([n for n in dims if n] if 0 in dims else dims) > MAX_COUNT:
        raise ValueError(f"Maximum allowed dimension exceeded: {name}={shown(shape)}")
    return dims


def entry_by_axis(entries: Sequence[Any], ndim: int) -> list[Any]:
    """Return the entries of an index, with whole slices for an ellipsis and for axes at the end that it leaves out.

    >>> entry_by_axis([0, ..., 1], 4)
    [0, slice(None, None, None), slice(None, None, None), 1]
    """
    at = next((i for i, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    before, after = [*entries[:at]], [*entries[at + 1 :]]
    return before + [slice(None)] * (ndim - len(before) - len(after)) + after


def choice(value: Any, allowed: Collection[T], name: str) -> T:
    """Return one of the values that are allowed.

    Raises
    ------
    TypeError
        If it is not of the type of any of them.
    ValueError
        If it is none of them.
    """
    if type(value) is str and value in allowed:
        return value  # type: ignore[return-value]  # it is one of them
    for known in allowed:
        if value is known or (type(value) is type(known) and value == known):
            return known
    listed = ", ".join([repr(known) for known in allowed])
    if not any(isinstance(value, type(known)) for known in allowed):
        raise TypeError(f"{name}={shown(value)} must be one of {listed}, not {type(value).__name__}")
    raise ValueError(f"{name}={shown(value)} must be one of {listed}")


def flag(value: Any, name: str) -> bool:
    """Return True or False, as numpy takes them where it checks: integers pass.

    Raises
    ------
    TypeError
        If it is neither a bool nor an integer.
    OverflowError
        If it is an integer that does not fit 64 bits.
    """
    if value is True or value is False:
        return value
    if isinstance(value, np.bool):
        return bool(value)
    n = integer(value, name)
    if not -MAX_COUNT <= n <= MAX_COUNT:
        raise OverflowError(f"{name}={n} is too large")
    return n != 0


def keeps_axes(keepdims: Any) -> bool:
    """Return ``keepdims=`` of a reduction, False if it is not given: numpy's take True, False and integers, and refuse
    a ``numpy.bool``.
    """
    if keepdims is NOT_GIVEN:
        return False
    if isinstance(keepdims, np.bool):
        raise TypeError(f"keepdims={shown(keepdims)}: 'numpy.bool' object cannot be interpreted as an integer")
    return flag(keepdims, "keepdims")


def number(value: Any, name: str, *, real: bool = False) -> Any:
    """Return one number, of Python or numpy, or an array without axes; with `real` none that is complex.

    Raises
    ------
    TypeError
        If the value is no such number.
    """
    if isinstance(value, (int, float)) or (isinstance(value, complex) and not real):
        return value
    kinds = "biuf" if real else "biufc"
    dtype = getattr(value, "dtype", None)
    if dtype is not None and getattr(dtype, "kind", "") in kinds and not getattr(value, "ndim", 0):
        return value
    raise TypeError(f"{name}={shown(value)} must be a {'real ' * real}number, not {type(value).__name__}")


def callback(value: T, name: str) -> T:
    """Return a function of the user, or anything else that can be called.

    Raises
    ------
    TypeError
        If the value cannot be called.
    """
    if not callable(value):
        raise TypeError(f"{name}={shown(value)} must be a function, not {type(value).__name__}")
    return value


def mapping(value: Any, name: str, of: str) -> dict[Any, Any]:
    """Return the mapping that was given, as a dict; an empty one if None was given.

    Parameters
    ----------
    of
        What it maps from and to, for the text of the error.

    Raises
    ------
    TypeError
        If the value is no mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}={shown(value)} must be a mapping from {of}, not {type(value).__name__}")
    return dict(value)


def sequence(value: Any, name: str, of: str, *, is_lazy: bool = True) -> tuple[Any, ...]:
    """Return the items of the sequence, or the other iterable, that was given.

    Parameters
    ----------
    of
        What the items are, for the text of the error.
    is_lazy
        Whether generators, and other iterables whose items have no places, are taken.

    Raises
    ------
    TypeError
        If the value cannot be iterated over, or is text, bytes, a mapping or a set.
    """
    needed = "__iter__" if is_lazy else "__getitem__"
    if isinstance(value, _NO_SEQUENCES) or not hasattr(value, needed):
        raise TypeError(f"{name}={shown(value)} must be a sequence of {of}, not {type(value).__name__}")
    return tuple(value)


#: numpy's names of the orders in which the elements of an array may lie in memory.
ORDERS = ("C", "F", "A", "K")
#: numpy's names of the rules that say which dtype may be cast to which.
CASTINGS = ("no", "equiv", "safe", "same_kind", "same_value", "unsafe")


def memory_order(value: Any, allowed: Collection[str] = ORDERS) -> str:
    """Return one of numpy's names of an order of elements in memory, in capitals; None is the first of those allowed.

    Raises
    ------
    TypeError
        If it is no text.
    ValueError
        If it is none of them.
    """
    if value is None:
        return next(iter(allowed))
    return choice(value.upper() if isinstance(value, str) else value, allowed, "order")


#: What becomes of indices outside of an axis, in the order in which numpy numbers it.
INDEX_MODES = ("clip", "wrap", "raise")


def index_mode(value: Any) -> str:
    """Return what becomes of indices outside of an axis: one of `INDEX_MODES`, which may be given by numpy's number of
    it; None is to raise.

    Raises
    ------
    TypeError
        If it is neither text nor an integer.
    ValueError
        If it is none of them.
    """
    if value is None:
        return "raise"
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < len(INDEX_MODES):
        return INDEX_MODES[value]
    return choice(str(value) if isinstance(value, str) else value, INDEX_MODES, "mode")


#: Classes of the errors that numpy raises when the value of an argument is wrong.
_OF_VALUES = (TypeError, ValueError, OverflowError, IndexError)
#: Errors that are made from a ufunc and its dtypes, not from a text: with a longer text they are raised as TypeErrors.
_OF_UFUNCS = np._core._exceptions.UFuncTypeError  # type: ignore[attr-defined]  # numpy's stubs do not have it


@contextmanager
def naming(**given: Any) -> Iterator[None]:
    """Name the arguments that numpy looks at in this block: the text of its error goes on with their names and
    values.
    """
    try:
        yield
    except _OF_VALUES as error:
        kind = TypeError if isinstance(error, _OF_UFUNCS) else type(error)
        if kind not in _OF_VALUES and kind is not np.exceptions.DTypePromotionError:
            raise  # an AxisError, LinAlgError or UnicodeError, or one of ours: it says what is wrong
        said = ", ".join([f"{name}={shown(value)}" for name, value in given.items()])
        raise kind(f"{error} ({said})") from None


def host_array(value: Any, name: str, dtype: DTypeLike = None, *, kinds: str = "biufcmM") -> HostArray:
    """Return an array of numbers on the host, not copied where it is one; of `dtype` if that is said.

    An array of a dtype that is not taken is not computed.

    Parameters
    ----------
    kinds
        numpy's letters of the kinds that are taken. An empty sequence is one of any kind.

    Raises
    ------
    TypeError
        If it holds text, structures or objects, or numbers of another kind.
    ValueError
        If it is nested unevenly, or `dtype` cannot hold it; OverflowError for integers.
    """
    held = getattr(value, "dtype", None)
    if held is None:
        with naming(**{name: value}):
            value = np.asarray(value, dtype)
        held = value.dtype if value.size else np.dtype(np.intp)
    if held.kind in "OSUV":
        raise TypeError(f"{name}={shown(value)} must be of numbers, not of {held}")
    if held.kind not in kinds:
        most = np.dtype(np.intp if "f" not in kinds else np.float64)
        raise TypeError(
            f"{name}={shown(value)}: Cannot cast array data from {held!r} to {most!r} according to the rule 'safe'"
        )
    array = np.asarray(value, dtype)
    return array if array.size or array.dtype.kind in kinds else array.astype(np.intp)


def host_positions(value: Any, name: str) -> HostArray:
    """Return positions on the host, as numpy takes them: numbers and nested lists lose fractions, as by ``int``, and
    arrays have to be of integers.
    """
    if isinstance(value, int | float | complex | np.generic | list | tuple | None):
        with naming(**{name: value}):
            return np.array(value, dtype=np.intp)
    return host_array(value, name, kinds="biu")
