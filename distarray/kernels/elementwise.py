"""The elementwise functions that a program may name, as calls with ``out``, and what is known of their bits.

`program` looks up each instruction here once, when it compiles a schedule. A name is one of numpy's ufuncs (the
standard's spellings, which numpy has too), ``special.<ufunc>`` of SciPy, or one of the few functions of this file that
numpy has no ufunc for: ``astype``, ``clip``, ``complex``, ``copy``, ``imag``, ``real``, ``round``, ``where``, and the
distributions of `random_maps`.

An element of a result may depend on nothing but the elements that it is computed from, else the cut of an array would
show in its bits. For most of numpy's float kernels that is not so: contiguous operands take a vector kernel, strided
and broadcast ones a scalar one, and the two round differently (``exp``, ``power``, complex products). `is_exact` says
which functions cannot differ; the others are only ever called on contiguous operands of one shape and on scalars.
A few depend even on the place in a contiguous array, because the last partial vector takes a scalar path (``fmax`` of
zeros of unlike sign, casts to ``uint32`` of what does not fit, ``power`` of a single element): those run on whole
vectors only, see `whole_vectors`. The sign and payload of a nan are never promised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.errstates import say
from distarray.kernels.random_maps import MAPS
from distarray.types import DType, HostArray

Call = Callable[..., Any]  # call(*operands, out=None): operands are arrays and scalars

#: IEEE 754 defines every bit of these on reals (or they look at bits only), whatever kernel computes them.
_EXACT_ON_REALS = frozenset(
    """
    add subtract multiply divide sqrt square reciprocal negative positive absolute fabs conjugate sign
    floor ceil trunc rint round copysign nextafter spacing ldexp
    equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not
    where copy real imag
    """.split()
)
#: On complex numbers, those that treat the two parts apart: products and moduli use fused multiply-add or not.
_EXACT_ON_COMPLEX = frozenset(
    """
    add subtract negative positive conjugate rint round
    equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not
    where copy real imag astype complex
    """.split()
)
#: Results that depend on the place in a contiguous array: see the module's docstring.
_NEED_WHOLE_VECTORS = frozenset("maximum minimum fmax fmin clip power float_power astype".split())

#: Exact, but numpy's kernels are wrong where they write apart (2.4): that of ``negative`` reads other elements if those
#: lie 4 or 8 apart (``x[:, 0]`` of 4 columns of ``f4``), that of ``signbit`` loses half of what it finds of integers.
_WRONG_APART = frozenset(("negative", "signbit"))

_COMPARISONS = frozenset("equal not_equal less less_equal greater greater_equal".split())

#: As fast as memory; others take several times as long, at least (measured: 4 to 60 times).
_QUICK = frozenset(
    """
    add subtract multiply divide square negative positive absolute conjugate copysign maximum minimum fmax fmin clip
    floor ceil trunc rint equal not_equal less less_equal greater greater_equal isnan isinf isfinite signbit
    bitwise_and bitwise_or bitwise_xor invert left_shift right_shift where copy real imag astype complex
    """.split()
)
#: How many times as long the others count.
_SLOW = 4

#: Those of this module that write into `out`, and make nothing else.
_FILL_OUT = frozenset("astype clip complex copy imag real view".split())

_ALIASES = {"reshard": "copy", "scalar": "copy"}

#: Elements of the longest vector register times the unrolling of numpy's kernels, for every dtype.
LANES = 64


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An Elementwise is an elementwise function, resolved for given dtypes.

    Attributes
    ----------
    name
        As numpy's warnings spell it.
    call
        ``call(*operands)`` returns a new array (or scalar), ``call(*operands, out=out)`` fills `out`.
    is_exact
        Whether strided operands, broadcast operands and a strided `out` give the same bits as contiguous ones.
    has_inplace
        Whether `out` may be one of the operands.
    cost
        Of an element, see `threads.HELPED`.
    makes_more
        Whether a call makes other arrays than `out` that are as long: then it is better called slice by slice.
    """

    name: str
    call: Call
    is_exact: bool
    has_inplace: bool
    cost: int
    makes_more: bool


@lru_cache(maxsize=1024)
def elementwise(name: str, params: tuple[Any, ...], dtype: DType, operands: tuple[DType | None, ...]) -> Elementwise:
    """Return the function `name` for operands and a result of the given dtypes.

    Parameters
    ----------
    name
        A ufunc of numpy, ``special.`` and a ufunc of SciPy, or a function of this module.
    params
        Static parameters: ``clip``: which of ``"min"``, ``"max"`` follow the first operand (default both); ``round``:
        the number of decimals; a ufunc with several results: which of them.
    dtype
        Of the result.
    operands
        Dtypes of the operands, None for a Python scalar.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    canonical = numpy_name(name)
    exact = is_exact(canonical, (dtype, *(d for d in operands if d is not None)))
    call = plain_call(name, params, dtype)
    is_ufunc = isinstance(call, np.ufunc)
    more = not is_ufunc and _makes_more(canonical, dtype, operands)
    if not exact and canonical in _NEED_WHOLE_VECTORS:
        call = whole_vectors(call, dtype)
    if canonical in _WRONG_APART:
        call = _made_beside(call)
    nbytes = sum([d.itemsize for d in (dtype, *operands) if d is not None])
    cost = nbytes if is_quick(canonical) else nbytes * _SLOW
    return Elementwise(event_name(name), call, exact, exact and is_ufunc, cost, more)


def _makes_more(name: str, dtype: DType, operands: tuple[DType | None, ...]) -> bool:
    """Return whether a call of a function that is not a ufunc of one result makes more than that (`Elementwise`)."""
    if name == "where":
        return operands[0] != np.dtype(bool) or any(d not in (dtype, None) for d in operands[1:])
    if name == "round":
        return dtype.kind in "iu"
    return name not in _FILL_OUT


def event_name(name: str) -> str:
    """Return how numpy's warnings spell the name of a function."""
    canonical = numpy_name(name)
    return "cast" if canonical == "astype" else canonical


def plain_call(name: str, params: tuple[Any, ...], dtype: DType) -> Call:
    """Return the function `name` as it is: for operands of any strides, on which its last bits may depend.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    canonical = numpy_name(name)
    if canonical in _OWN:
        return _OWN[canonical](params, dtype)
    ufunc = _ufunc(name)
    return ufunc if ufunc.nout == 1 else _one_of(ufunc, *params)


@lru_cache(maxsize=1024)
def numpy_name(name: str) -> str:
    """Return the one name of a function that has several: ``pow`` and ``power``, ``abs`` and ``absolute``."""
    name = _ALIASES.get(name, name)
    if name in _OWN or name.startswith("special."):
        return name
    return str(_ufunc(name).__name__)


def is_exact(name: str, dtypes: tuple[DType, ...]) -> bool:
    """Return whether every kernel that numpy may choose for `name` gives the same bits.

    >>> is_exact("add", (np.dtype("f8"),)), is_exact("exp", (np.dtype("f8"),)), is_exact("power", (np.dtype("i8"),))
    (True, False, True)
    """
    kinds = {d.kind for d in dtypes}
    if kinds & {"M", "m"} or not kinds & {"f", "c"}:
        return True
    if name == "astype":  # the result comes first. Of what does not fit an integer, any bits may come
        return dtypes[0].kind not in "iu"
    return name in (_EXACT_ON_COMPLEX if "c" in kinds else _EXACT_ON_REALS)


def is_quick(name: str) -> bool:
    """Return whether a function, by the name that `numpy_name` returns, is as fast as memory."""
    return name in _QUICK


@lru_cache(maxsize=1024)
def loop_dtypes(name: str, operands: tuple[DType | type, ...], dtype: DType) -> tuple[DType | None, ...]:
    """Return the dtypes to which numpy casts the operands; None where a function takes any.

    Parameters
    ----------
    operands
        Dtypes; the types of Python scalars, which are weak.
    dtype
        Of the result.

    Examples
    --------
    >>> loop_dtypes("less", (np.dtype("i4"), float), np.dtype(bool))
    (dtype('float64'), dtype('float64'))
    """
    if name == "where":
        return (np.dtype(bool), dtype, dtype)
    if name == "clip":
        return (dtype,) * len(operands)
    if name in _OWN:
        return (None,) * len(operands)
    ufunc = _ufunc(name)
    known = [np.dtype(bool) if d is bool else d for d in operands]  # bool is not weak
    resolved = ufunc.resolve_dtypes((*known, *[None] * ufunc.nout))
    return tuple(resolved[: ufunc.nin])


def fitted(scalar: Any, name: str, params: tuple[Any, ...], place: int, loop: DType | None) -> Any:
    """Return an operand of a function as numpy takes it where it computes in a dtype: whole numbers of Python's beyond
    that are infinite where they are compared, wrap around where they are chosen, and bound nothing.

    >>> fitted(300, "less", (), 1, np.dtype("u1")), fitted(300, "where", (), 1, np.dtype("u1"))
    (inf, 44)
    """
    if type(scalar) is not int or loop is None or loop.kind not in "iu":
        return scalar
    least, most = np.iinfo(loop).min, np.iinfo(loop).max
    if least <= scalar <= most:
        return scalar
    if name in _COMPARISONS:
        return math.inf if scalar > most else -math.inf
    if name == "where":
        return _chosen(scalar, loop).item()
    is_bound = name == "clip" and (params or ("min", "max"))[place - 1] == ("max" if scalar > most else "min")
    return min(max(scalar, least), most) if is_bound else scalar  # numpy says that it does not fit


def whole_vectors(call: Call, dtype: DType) -> Call:
    """Return `call` on contiguous operands such that every element goes through the vector kernel, the last ones too.

    The incomplete last vector is computed on a copy that repeats its last element, which raises no new floating
    point warning. A 0-d result is numpy's own 0-d result: no cut can make one out of anything else.
    """

    def on_whole_vectors(*operands: Any, out: Any = None) -> Any:
        if out is None:
            shape: tuple[int, ...] = next((x.shape for x in operands if getattr(x, "ndim", 0)), ())
            if not shape:
                return call(*operands)
            out = np.empty(shape, dtype)
        n = out.size
        done = n - n % LANES
        if done == n or out.ndim == 0:
            call(*operands, out=out)
            return out
        flat = [x.reshape(-1) if getattr(x, "ndim", 0) else x for x in operands]
        target = out.reshape(-1)  # contiguous, as all are: a view
        if done:
            call(*(x[:done] if getattr(x, "ndim", 0) else x for x in flat), out=target[:done])
        tail = np.empty(LANES, dtype)
        call(*(_padded(x[done:]) if getattr(x, "ndim", 0) else x for x in flat), out=tail)
        target[done:] = tail[: n - done]
        return out

    return on_whole_vectors


def _made_beside(call: Call) -> Call:
    """Return `call` such that numpy's kernel writes contiguous arrays only."""

    def made_beside(x: Any, out: Any = None) -> Any:
        if out is None or out.flags.c_contiguous:
            return call(x, out=out)
        np.copyto(out, call(x))
        return out

    return made_beside


def _padded(tail: Any) -> Any:
    whole = np.empty(LANES, tail.dtype)
    whole[: tail.size] = tail
    whole[tail.size :] = tail[-1]
    return whole


def _ufunc(name: str) -> np.ufunc:
    if name.startswith("special."):
        import scipy.special  # late: takes a quarter of a second

        found = getattr(scipy.special, name.removeprefix("special."), None)
        found = getattr(found, "__wrapped__", found)  # with SCIPY_ARRAY_API=1 a ufunc is wrapped
    else:
        found = getattr(np, name, None)
    if not isinstance(found, np.ufunc) or found.signature is not None:
        raise ValueError(f"{name!r} is not an elementwise function: neither a ufunc of numpy nor one of this module")
    return found


def _one_of(ufunc: np.ufunc, which: int) -> Call:
    """Return one result of a ufunc that has several: ``modf``, ``frexp``, ``divmod``."""

    def call(*operands: Any, out: Any = None) -> Any:
        outs: list[Any] = [None] * ufunc.nout
        outs[which] = out
        return ufunc(*operands, out=tuple(outs))[which]

    return call


def _astype(_params: tuple[Any, ...], dtype: DType) -> Call:
    def astype(x: Any, out: Any = None) -> Any:
        if dtype.kind not in "cb" and getattr(x, "dtype", dtype).kind == "c":
            x = x.real  # what numpy does after a ComplexWarning; who asked for it was warned when they asked
        if dtype.kind in "mM" and getattr(x, "dtype", dtype).kind in "mM" and np.datetime_data(dtype)[0] == "generic":
            x = np.asarray(x).astype(np.int64).view(dtype)  # numpy would take the unit of `x`
        if out is None:
            return np.array(x, dtype)
        np.copyto(out, x, casting="unsafe")
        return out

    return astype


def _clip(params: tuple[Any, ...], _dtype: DType) -> Call:
    bounds = params or ("min", "max")

    def clip(x: Any, *values: Any, out: Any = None) -> Any:
        limits: dict[str, Any] = {"min": None, "max": None} | dict(zip(bounds, values, strict=True))
        return np.clip(x, limits["min"], limits["max"], out=out)

    return clip


def _complex(_params: tuple[Any, ...], dtype: DType) -> Call:
    """Return real and imaginary part put together: no arithmetic, which would lose infinities and signs of zero."""

    def call(x: Any, y: Any, out: Any = None) -> Any:
        if out is None:
            out = np.empty(broadcast_shapes(np.shape(x), np.shape(y)), dtype)
        out.real, out.imag = x, y
        return out

    return call


def _copying(of: Callable[[Any], Any]) -> Callable[[tuple[Any, ...], DType], Call]:
    """Return a kernel that copies what `of` sees in its operand."""

    def make(_params: tuple[Any, ...], _dtype: DType) -> Call:
        def call(x: Any, out: Any = None) -> Any:
            if out is None:
                return np.array(of(x), order="K")
            np.copyto(out, of(x))
            return out

        return call

    return make


def _warned(params: tuple[Any, ...], dtype: DType) -> Call:
    warning, of = params

    def seen(x: Any) -> Any:
        if np.isnan(x).any() if of == "nan" else not np.all(x > 0):
            say(warning)
        return x

    return _copying(seen)(params, dtype)


def _bits(params: tuple[Any, ...], dtype: DType) -> Call:
    return _copying(lambda x: x.view(np.dtype(params[0])))(params, dtype)


def _round(params: tuple[Any, ...], dtype: DType) -> Call:
    decimals: int = params[0] if params else 0
    is_divided = decimals < 0 and dtype.kind in "iu"  # in double, which does not cast back into `out`

    def call(x: Any, out: Any = None) -> Any:
        if out is None or not is_divided:
            return np.round(x, decimals, out=out)
        np.copyto(out, np.round(x, decimals), casting="unsafe")
        return out

    return call


def _where(_params: tuple[Any, ...], dtype: DType) -> Call:
    word = np.dtype(f"i{dtype.itemsize}") if dtype.itemsize in (1, 2, 4, 8) else None

    def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
        is_mask = type(condition) is np.ndarray and condition.dtype == bool
        if out is None or word is None or not is_mask or condition.shape != out.shape:
            chosen = np.where(condition, x, y)
            if out is None:
                return chosen
            np.copyto(out, chosen)
            return out
        # (x ^ y) * condition ^ y on the bits: no branch, so it takes as long when the condition is hard to predict.
        # np.where takes up to four times as long then, copyto(out, x, where=condition) five times.
        bits, first, second = out.view(word), _chosen(x, dtype).view(word), _chosen(y, dtype).view(word)
        np.bitwise_xor(first, second, out=bits)
        np.multiply(bits, condition, out=bits)
        np.bitwise_xor(bits, second, out=bits)
        return out

    return where


def _chosen(x: Any, dtype: DType) -> HostArray:
    """Return what ``where`` chooses from as an array: numpy casts a number of Python's that does not fit, too."""
    return np.asarray(x).astype(dtype, copy=False)


_OWN: dict[str, Callable[[tuple[Any, ...], DType], Call]] = {
    "astype": _astype,
    "byteswap": _copying(lambda x: x.byteswap()),
    "clip": _clip,
    "complex": _complex,
    "copy": _copying(lambda x: x),
    "imag": _copying(np.imag),
    "real": _copying(np.real),
    "round": _round,
    "view": _bits,
    "warned": _warned,
    "where": _where,
    **MAPS,
}
