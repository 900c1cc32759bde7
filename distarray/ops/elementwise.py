"""Elementwise functions: the array API standard's, numpy's beyond it, and numpy's spellings.

A line ``sin = ufunc("sin", 1)`` is the whole operation: its kernel is the function of that name in the block's
namespace, its dtypes are asked of numpy (`infer_map`), its loops are the broadcast axes. Below the tables stand the few
functions with a signature of their own, and those that are composed of others.
"""

from __future__ import annotations

import builtins
import cmath
import math
import sys
from typing import Any, Literal

import numpy as np

from distarray.arguments import host_array, integer
from distarray.dtypes import FOREIGN, as_dtype
from distarray.errors import warn_user
from distarray.expr.bind import bind, bind_map, literal, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.families import Array, by_numpy, one_array, ufunc, ufunc_of
from distarray.types import DType, DTypeLike

# ------------------------------------------------------------------------------------- one operand, the standard

abs = ufunc("abs", 1)
acos = ufunc("acos", 1)
acosh = ufunc("acosh", 1)
asin = ufunc("asin", 1)
asinh = ufunc("asinh", 1)
atan = ufunc("atan", 1)
atanh = ufunc("atanh", 1)
bitwise_invert = ufunc("bitwise_invert", 1)
ceil = ufunc("ceil", 1)
conj = ufunc("conj", 1)
cos = ufunc("cos", 1)
cosh = ufunc("cosh", 1)
exp = ufunc("exp", 1)
expm1 = ufunc("expm1", 1)
floor = ufunc("floor", 1)
isfinite = ufunc("isfinite", 1)
isinf = ufunc("isinf", 1)
isnan = ufunc("isnan", 1)
log = ufunc("log", 1)
log10 = ufunc("log10", 1)
log1p = ufunc("log1p", 1)
log2 = ufunc("log2", 1)
logical_not = ufunc("logical_not", 1)
negative = ufunc("negative", 1)
positive = ufunc("positive", 1)
reciprocal = ufunc("reciprocal", 1)
sign = ufunc("sign", 1)
signbit = ufunc("signbit", 1)
sin = ufunc("sin", 1)
sinh = ufunc("sinh", 1)
sqrt = ufunc("sqrt", 1)
square = ufunc("square", 1)
tan = ufunc("tan", 1)
tanh = ufunc("tanh", 1)
trunc = ufunc("trunc", 1)

# ---------------------------------------------------------------------------------------- one operand, numpy

bitwise_count = ufunc("bitwise_count", 1)
cbrt = ufunc("cbrt", 1)
deg2rad = ufunc("deg2rad", 1)
exp2 = ufunc("exp2", 1)
fabs = ufunc("fabs", 1)
isnat = ufunc("isnat", 1)
rad2deg = ufunc("rad2deg", 1)
rint = ufunc("rint", 1)
spacing = ufunc("spacing", 1)

# ------------------------------------------------------------------------------------ two operands, the standard

add = ufunc("add", 2)
atan2 = ufunc("atan2", 2)
bitwise_and = ufunc("bitwise_and", 2)
bitwise_left_shift = ufunc("bitwise_left_shift", 2)
bitwise_or = ufunc("bitwise_or", 2)
bitwise_right_shift = ufunc("bitwise_right_shift", 2)
bitwise_xor = ufunc("bitwise_xor", 2)
copysign = ufunc("copysign", 2)
divide = ufunc("divide", 2)
equal = ufunc("equal", 2)
floor_divide = ufunc("floor_divide", 2)
greater = ufunc("greater", 2)
greater_equal = ufunc("greater_equal", 2)
hypot = ufunc("hypot", 2)
less = ufunc("less", 2)
less_equal = ufunc("less_equal", 2)
logaddexp = ufunc("logaddexp", 2)
logical_and = ufunc("logical_and", 2)
logical_or = ufunc("logical_or", 2)
logical_xor = ufunc("logical_xor", 2)
maximum = ufunc("maximum", 2)
minimum = ufunc("minimum", 2)
multiply = ufunc("multiply", 2)
nextafter = ufunc("nextafter", 2)
not_equal = ufunc("not_equal", 2)
remainder = ufunc("remainder", 2)
subtract = ufunc("subtract", 2)

# --------------------------------------------------------------------------------------- two operands, numpy

float_power = ufunc("float_power", 2)
fmax = ufunc("fmax", 2)
fmin = ufunc("fmin", 2)
fmod = ufunc("fmod", 2)
gcd = ufunc("gcd", 2)
heaviside = ufunc("heaviside", 2)
lcm = ufunc("lcm", 2)
ldexp = ufunc("ldexp", 2)
logaddexp2 = ufunc("logaddexp2", 2)

# ---------------------------------------------------------------------------------------- numpy's spellings

absolute = abs
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
bitwise_not = invert = bitwise_invert
conjugate = conj
degrees = rad2deg
left_shift = bitwise_left_shift
mod = remainder
radians = deg2rad
right_shift = bitwise_right_shift
true_divide = divide

# ------------------------------------------------------------------------------------ signatures of their own

ASTYPE = declare("astype", "map", is_identity=True)
CLIP = declare("clip", "map")
#: A complex array of its real and its imaginary part, without arithmetic: infinities and signs of zero stay.
COMPLEX = declare("complex", "map")
FREXP = declare("frexp", "map")
#: The bits of each element as a number of another dtype of the same size.
BITS = declare("view", "map")
BYTESWAP = declare("byteswap", "map")
#: The bits of a whole axis as numbers of a dtype of another size.
BITS_OF_AXIS = declare("view_of_axis", "block")
IMAG = declare("imag", "map")
MODF = declare("modf", "map")
#: The element of an array without axes, as the result of a function: what numpy has a scalar for (`as_scalar`).
SCALAR = declare("scalar", "map")
POW = declare("pow", "map")
#: `pow` of integers by integers that are known only when it runs: a negative one is an error.
POW_INTEGER = declare("power", "map", may_raise=True)
REAL = declare("real", "map")
ROUND = declare("round", "map")
#: Elements as they are, of some of which numpy warns.
WARNED = declare("warned", "map")
WHERE = declare("where", "map")


def astype(x: Array, dtype: DTypeLike, /, *, copy: bool = True) -> Array:
    """Return the elements of `x` as `dtype`, cast as by ``numpy.ndarray.astype``.

    Without `copy`, an array that has the dtype already is returned itself. Complex numbers lose their imaginary part
    with numpy's warning.
    """
    own = x.dtype if hasattr(type(x), "__dx_node__") else one_array("astype", x)[0].dtype
    wanted = as_dtype(dtype)
    if wanted == own:
        if not copy:
            return x
        node, box = one_array("astype", x)
        return box(node)
    _check_cast(own, wanted)
    if own.kind == "c" and wanted.kind not in "cb":
        warn_of_lost_imaginary_part(own, wanted)
        x = real(x)
        if wanted == own.type(0).real.dtype:
            return x
    return bind_map(ASTYPE, (x,), (wanted.str,))


def warned(x: Array, warning: str, of: Literal["nan", "no count"]) -> Array:
    """Return `x`; when its elements are known, a warning is given if one of them is nan, or a count that is not
    positive.
    """
    return bind_map(WARNED, (x,), (warning, of))


def warn_of_lost_imaginary_part(own: DType, wanted: DType) -> None:
    """Warn, at the user's line, of complex numbers that are cast to real ones; of dates and truth values numpy does
    not.
    """
    if own.kind == "c" and wanted.kind in "iuf":
        warn_user("Casting complex values to real discards the imaginary part", np.exceptions.ComplexWarning)


def real(x: Array, /) -> Array:
    """Return the real part of each element."""
    return bind_map(REAL, (x,))


def imag(x: Array, /) -> Array:
    """Return the imaginary part of each element."""
    return bind_map(IMAG, (x,))


def bits(x: Array, dtype: str) -> Array:
    """Return the bits of each element as a number of another dtype of the same size."""
    return bind_map(BITS, (x,), (dtype,))


def bits_of_axis(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return the bits along the last axis as numbers of a dtype of another size; that axis becomes whole."""
    node, box = one_array("view", x)
    n = node.shape[-1] * node.dtype.itemsize // dtype.itemsize
    params = (f"... n -> ... m | n: whole, m: new({n})", dtype.str)
    return box(bind(BITS_OF_AXIS, (node,), (*node.shape[:-1], n), dtype, params))


def byteswap(x: Array) -> Array:
    """Return the elements with their bytes in the other order."""
    return bind_map(BYTESWAP, (x,))


def as_scalar(x: Array) -> Array:
    """Return the result of a function of which numpy would make a scalar: operators in place replace it.

    An array that has axes is returned itself. Other operations without axes are scalars anyway, but for those that
    also make arrays without axes: casts, ``where`` and views.
    """
    node, _ = one_array("scalar", x)
    return x if node.shape else bind_map(SCALAR, (x,))


def as_array(x: Array) -> Array:
    """Return the result of a function of which numpy makes an array, also without axes: operators in place write to
    it.
    """
    node, _ = one_array("array", x)
    return x if node.shape else bind_map(ASTYPE, (x,), (node.dtype.str,))


def _check_cast(old: np.dtype[Any], new: np.dtype[Any]) -> None:
    # Numbers cast to anything; what dates and time spans cast to, numpy knows.
    if old.kind in "mM" or new.kind in "mM":
        np.empty(0, old).astype(new)


def clip(x: Array, /, min: Array = None, max: Array = None) -> Array:
    """Return `x` limited to the interval from `min` to `max`; None is no limit, both broadcast."""
    bounds = [(name, value) for name, value in (("min", min), ("max", max)) if value is not None]
    if not bounds:
        return positive(x)
    return bind_map(CLIP, (x, *(value for _, value in bounds)), tuple(name for name, _ in bounds))


@ufunc_of(2)
def pow(x1: Array, x2: Array, /) -> Array:
    """Return `x1` raised to `x2`.

    Raises
    ------
    ValueError
        For integers to negative integer powers, as in numpy: at the call where the exponent is a Python integer.
    """
    if builtins.any(isinstance(v, float) or getattr(getattr(v, "dtype", None), "kind", "") == "f" for v in (x1, x2)):
        return bind_map(POW, (x1, x2))  # what nodes are not needed for
    operands = unbox("pow", (x1, x2))
    base, exponent = operands.nodes
    kinds = [n.dtype.kind if type(n) is Expr else type(n) for n in (base, exponent)]
    if builtins.all(kind in ("i", "u", "b", int, bool) for kind in kinds):
        if type(exponent) is int:
            # numpy finds the first element that it cannot raise to the power; of unsigned ones it says more
            if exponent < 0 and type(base) is Expr and base.size and kinds[0] != "u":
                np.power(np.ones(1, base.dtype), exponent)
        elif kinds[1] == "i":
            return bind_map(POW_INTEGER, (x1, x2))
    return bind_map(POW, (x1, x2))


power = pow


def round(x: Array, /, decimals: int = 0) -> Array:
    """Return `x` rounded to `decimals` places, halves to even."""
    places = integer(decimals, "decimals")
    return bind_map(ROUND, (x,), (places,) if places else ())


def where(condition: Array, x1: Array, x2: Array, /) -> Array:
    """Return `x1` where `condition` is true, else `x2`; all three broadcast.

    Texts and objects are no elements here: of such host data the result is a NumPy array, and all is brought to it.
    """
    try:
        return bind_map(WHERE, (condition, x1, x2))
    except TypeError:
        given = [x for x in (x1, x2) if isinstance(x, np.ndarray | np.generic | str | bytes)]
        if not any(np.asarray(x).dtype.kind in FOREIGN for x in given):
            raise
    return np.where(*[np.asarray(x) if hasattr(x, "__dx_node__") else x for x in (condition, x1, x2)])


@ufunc_of(1)
def modf(x: Array, /) -> tuple[Array, Array]:
    """Return the fractional and the integral part of `x`."""
    return bind_map(MODF, (x,), (0,)), bind_map(MODF, (x,), (1,))


@ufunc_of(1)
def frexp(x: Array, /) -> tuple[Array, Array]:
    """Return the mantissa and exponent: ``x = mantissa * 2**exponent``."""
    return bind_map(FREXP, (x,), (0,)), bind_map(FREXP, (x,), (1,))


@ufunc_of(2)
def divmod(x1: Array, x2: Array, /) -> tuple[Array, Array]:
    """Return ``(x1 // x2, x1 % x2)``."""
    return floor_divide(x1, x2), remainder(x1, x2)


# ---------------------------------------------------------------------------------------------- compositions


def angle(z: Array, /, deg: bool = False) -> Array:
    """Return the argument of a complex number, in radians unless `deg`."""
    node, _ = one_array("angle", z)
    a = atan2(imag(z), real(z)) if node.dtype.kind == "c" else atan2(0, z)
    return multiply(a, 180 / math.pi) if deg else a


def isclose(a: Array, b: Array, rtol: Array = 1e-05, atol: Array = 1e-08, equal_nan: bool = False) -> Array:
    """Return where ``|a - b| <= atol + rtol * |b|``, infinities equal themselves and, with `equal_nan`, nan equals
    nan. A tolerance that is not finite is an invalid value, of which numpy's state says what becomes; of arrays of ours
    nobody looks.
    """
    if not (_is_finite(rtol) and _is_finite(atol)):
        _tell_invalid(f"One of rtol or atol is not valid, atol: {atol}, rtol: {rtol}")
    return _isclose(a, b, rtol, atol, equal_nan)


@by_numpy(np.isclose)
def _isclose(a: Array, b: Array, rtol: Array, atol: Array, equal_nan: bool) -> Array:
    operands = unbox("isclose", (a, b, rtol, atol))
    x: Any
    y: Any
    x, y, rel, tol = operands.nodes  # nodes or scalars
    if _are_scalars(x, y) and not _are_scalars(rel, tol):  # else what is made of both is no node beside a tolerance
        y = literal(np.asarray(y), operands.env)
    # An inexact y, else the difference of the smallest integer overflows; but tolerances of time spans are integers.
    if type(y) is Expr:
        y = multiply(y, 1.0) if y.dtype.kind in "biu" else y
        finite, size = isfinite(y), abs(y)
    else:
        y = y * 1.0
        finite, size = cmath.isfinite(y), builtins.abs(y)
    with np.errstate(invalid="ignore"):
        scaled = rel * size if _are_scalars(rel, size) else multiply(rel, size)
        tolerance = tol + scaled if _are_scalars(tol, scaled) else add(tol, scaled)
        near = less_equal(abs(subtract(x, y)), tolerance)
        result = logical_or(logical_and(near, finite), equal(x, y))
        if equal_nan:
            nans = [isnan(v) if type(v) is Expr else v != v for v in (x, y)]
            result = logical_or(result, logical_and(*nans))
    return operands.box(result)


def _is_finite(tolerance: Any) -> bool:
    if type(tolerance) is float:
        return math.isfinite(tolerance)
    return not isinstance(tolerance, float | complex | np.generic | np.ndarray) or builtins.all(
        np.isfinite(tolerance).flat
    )


def _tell_invalid(text: str) -> None:
    """Do what ``np.errstate(invalid=...)`` says of what is found at the call."""
    wanted = np.geterr()["invalid"]
    if wanted == "raise":
        raise FloatingPointError(text)
    if wanted == "warn":
        warn_user(text)
    elif wanted == "print":
        sys.stdout.write(f"{text}\n")


def _are_scalars(*values: object) -> bool:
    return not builtins.any(type(v) is Expr for v in values)


def fix(x: Array, /) -> Array:
    """Return `x` rounded to an integer towards zero."""
    return trunc(x)


def isreal(x: Array, /) -> Array:
    """Return where the imaginary part is zero; of dates nowhere."""
    return less(x, x) if _is_date(x) else equal(imag(x), 0)


def iscomplex(x: Array, /) -> Array:
    """Return where the imaginary part is not zero."""
    return less(x, x) if _is_date(x) else not_equal(imag(x), 0)


def _is_date(x: Array) -> bool:
    return getattr(getattr(x, "dtype", None), "kind", None) == "M"


def isposinf(x: Array, /) -> Array:
    """Return where `x` is positive infinity."""
    _refuse_complex("isposinf", x)
    return logical_and(isinf(x), logical_not(signbit(x)))


def isneginf(x: Array, /) -> Array:
    """Return where `x` is negative infinity."""
    _refuse_complex("isneginf", x)
    return logical_and(isinf(x), signbit(x))


def _refuse_complex(name: str, x: Array) -> None:
    dtype = one_array(name, x)[0].dtype
    if dtype.kind not in "biuf":
        raise TypeError(f"This operation is not supported for {dtype} values because it would be ambiguous.")


def nan_to_num(x: Array, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    """Return `x` with nan replaced, by 0, and the infinities, by the largest and smallest number, unless said
    otherwise.
    """
    node, box = one_array("nan_to_num", x)
    if node.dtype.kind not in "fc":
        return box(node)
    given: tuple[tuple[str, Any], ...] = (("nan", nan), ("posinf", posinf), ("neginf", neginf))
    for name, value in given:
        if value is None or isinstance(value, float | int) or node.dtype.kind == "c":
            continue
        held = value.dtype if hasattr(value, "dtype") else host_array(value, name).dtype
        if held.kind == "c":
            raise TypeError(
                f"{name}={value}: Cannot cast scalar from dtype('complex128') to {node.dtype!r} according to the rule "
                "'same_kind'"
            )
    if node.dtype.kind == "c":
        return bind_map(COMPLEX, [nan_to_num(part(x), nan, posinf, neginf) for part in (real, imag)])
    limits = np.finfo(node.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    finite = where(isinf(x), where(signbit(x), low, high), x)
    return astype(where(isnan(x), nan, finite), node.dtype, copy=False)


def sinc(x: Array, /) -> Array:
    """Return ``sin(pi x) / (pi x)``, 1 at 0."""
    y = multiply(math.pi, x)
    dtype = one_array("sinc", y)[0].dtype
    y = where(y, y, float(np.finfo(dtype).eps) if dtype.kind == "f" else 1e-20)
    return divide(sin(y), y)
