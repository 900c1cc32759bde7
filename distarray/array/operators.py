"""Python's operators on arrays: arithmetic, comparison, bits, in place.

A line ``__add__ = _forward(_add, np.add)`` is the whole operator. Operators go the way of `bind_map` a frame shorter:
they are the path that overhead is measured on. What an operand may be is decided as numpy decides it: arrays, numbers
and nested lists are taken, types that say how they deal with arrays (``__array_ufunc__``) are left to do so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from inspect import unwrap
from typing import Any, Self, TypeAlias

import numpy as np

from distarray.array import writes
from distarray.array.at_call import binary_at_call, product_at_call, update_at_call
from distarray.array.handle import AnyHandle, Handle, is_scalar
from distarray.array.namespace import namespace
from distarray.expr.bind import map_node, nested
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.op import CATALOGUE, Op
from distarray.ops import elementwise
from distarray.ops.creation import full_like
from distarray.types import HostArray

#: The other operand: an array, a number, or whatever numpy makes an array of.
Operand: TypeAlias = Any
#: A function of two operands that boxes its result.
Function: TypeAlias = Callable[[Any, Any], Any]

#: The operations of functions that are one.
_OPS: dict[Function, Op] = {}
#: Types that are operands without further question.
_PLAIN = {bool, int, float, complex, np.ndarray, np.float64, np.float32, np.int64, np.bool_}
#: numpy's own, which take part in operators as operands. Its scalars have a priority, and no `__array_ufunc__`.
_NUMPYS = (np.ndarray, np.generic)
#: Where classes are at home whose objects are equal to what they are as numbers, or to nothing of ours.
_OF_PYTHON = frozenset({"builtins", "datetime", "decimal", "fractions", "numpy"})


#: Of arrays among types that say by ``__array_priority__``, and not by ``__array_ufunc__``, which of two goes first.
PRIORITY = 1000


def _native(x: Handle, other: Operand) -> Operand:
    """Return a date or a span of pandas, which knows numpy's arrays alone, as numpy's if the array has such elements;
    anything else as it is.
    """
    native = getattr(other, "asm8", None)
    is_one = isinstance(native, np.generic) and getattr(other, "tz", None) is None
    return native if is_one and x.dtype.kind in "mM" else other


def is_operand(value: object) -> bool:
    """Return whether an operator takes `value`, rather than leaving the operation to it as numpy would."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if hasattr(kind, "__dx_node__"):
        _PLAIN.add(kind)
        return True
    if isinstance(value, _NUMPYS):
        return True
    if hasattr(kind, "__array_ufunc__"):
        return False
    if isinstance(value, bool | int | float | complex):
        return True
    if getattr(kind, "__array_priority__", 0) > PRIORITY:
        return False
    try:
        return nested(value) is not value or np.asarray(value).dtype.kind in "biufcMm"
    except (TypeError, ValueError):
        return False


def _left_to(other: object, ufunc: np.ufunc, *operands: Operand, **options: Any) -> Any:
    """Return what becomes of an operator whose other operand is none of ours: numpy's rule (`NDArrayOperatorsMixin`).

    Types that say how ufuncs treat them decide it there; for the others Python asks the operand itself.
    """
    if getattr(type(other), "__array_ufunc__", None) is None:
        return NotImplemented
    return ufunc(*operands, **options)


def _forward(function: Function, ufunc: np.ufunc) -> Callable[[AnyHandle, Operand], AnyHandle]:
    def operator(self: AnyHandle, other: Operand, /) -> AnyHandle:
        if type(other) not in _PLAIN and not is_operand(other := _native(self, other)):
            return _left_to(other, ufunc, self, other)  # type: ignore[no-any-return]  # theirs
        made: AnyHandle = function(self, other)
        return made

    return operator


def _reflected(function: Function, ufunc: np.ufunc) -> Callable[[AnyHandle, Operand], AnyHandle]:
    def operator(self: AnyHandle, other: Operand, /) -> AnyHandle:
        if type(other) not in _PLAIN and not is_operand(other := _native(self, other)):
            return _left_to(other, ufunc, other, self)  # type: ignore[no-any-return]  # theirs
        made: AnyHandle = function(other, self)
        return made

    return operator


def _inplace(function: Function, ufunc: np.ufunc) -> Callable[[AnyHandle, Operand], AnyHandle]:
    op = _OPS.get(function)

    def operator(self: AnyHandle, other: Operand, /) -> AnyHandle:
        if type(other) not in _PLAIN and not is_operand(other):
            return _left_to(other, ufunc, self, other, out=(self,))  # type: ignore[no-any-return]  # theirs
        if op is not None and update_at_call(op, (self, other), self):
            return self
        return writes.update(self, function, other, ufunc.__name__)

    return operator


def _unary(function: Callable[[Any], Any]) -> Callable[[AnyHandle], AnyHandle]:
    def operator(self: AnyHandle, /) -> AnyHandle:
        made: AnyHandle = function(self)
        return made

    return operator


def _mapped(name: str) -> Function:
    op: Op = CATALOGUE[name]

    def function(x1: Operand, x2: Operand) -> Any:
        made = binary_at_call(op, x1, x2)
        return map_node(op, (x1, x2)) if made is None else made

    _OPS[function] = op
    return function


def _compared(name: str, otherwise: bool | None) -> Callable[[AnyHandle, Operand], AnyHandle]:
    """Compare; of what numpy has no comparison for, `otherwise` everywhere, or an error."""
    function = _mapped(name)

    def operator(self: AnyHandle, other: Operand, /) -> AnyHandle:
        if type(other) in _PLAIN or is_operand(other := _native(self, other)):
            try:
                return function(self, other)  # type: ignore[no-any-return]
            except np.exceptions.DTypePromotionError:
                if otherwise is None:
                    raise
            except TypeError:
                # No loop for these dtypes: dates are never equal to numbers; long doubles, none of ours, may be.
                held = getattr(other, "dtype", None)
                if otherwise is None or getattr(held, "char", "") in ("g", "G"):
                    raise
                if getattr(held, "kind", "") in ("m", "M"):  # spans of time whose units have no common one are an error
                    _ = np.empty(0, self.dtype) == np.empty(0, held)
        elif otherwise is None or (_has_a_say(type(other)) and not hasattr(other, "asm8")):
            return _left_to(other, getattr(np, name), self, other)  # type: ignore[no-any-return]  # theirs
        objects = np.asarray(other)
        if objects.dtype == object:
            if any(map(_compares, {type(each) for each in objects.flat})):
                return _compared_by(objects, self, getattr(np, name))
            if (found := _compared_to_objects(self, objects, is_equal=not otherwise)) is not None:
                return found
        shape = broadcast_shapes(self.shape, np.shape(other) if not isinstance(other, str) else ())
        made: AnyHandle = full_like(self, otherwise, dtype=np.bool_, shape=shape)
        return made

    return operator


def _has_a_say(kind: type) -> bool:
    """Return whether values of a type may decide themselves what comparing them with arrays means."""
    return hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_priority__")


def _compares(kind: type) -> bool:
    """Return whether the class of somebody says what its objects are equal to: it may be anything."""
    homes = [next(c for c in kind.__mro__ if name in vars(c)).__module__ for name in ("__eq__", "__ne__")]
    return not _OF_PYTHON.issuperset([home.partition(".")[0] for home in homes])


def _compared_by(objects: HostArray, x: AnyHandle, compare: np.ufunc) -> AnyHandle:
    """Return what an object says of each element, which is asked of it as numpy asks."""
    if objects.ndim:
        kinds = sorted({kind.__name__ for kind in map(type, objects.flat) if _compares(kind)})
        raise TypeError(
            f"{compare.__name__}: elements of type {', '.join(kinds)} say themselves what they are equal to, and are "
            "no elements of a DistArray; compare x.compute() with them, or x with one of them"
        )
    made: AnyHandle = namespace().map_blocks(_asked, x, dtype=np.bool_, compare=compare, value=objects)
    return made


def _asked(block: HostArray, compare: np.ufunc, value: HostArray) -> HostArray:
    return np.asarray(compare(block, value))


def _compared_to_objects(x: AnyHandle, objects: HostArray, *, is_equal: bool) -> AnyHandle | None:
    """Return which elements are equal (or are not) to objects of Python's, as Python compares them: dates, fractions,
    decimal numbers. None if no element of this dtype is equal to any.
    """
    values, has_equal = np.zeros(objects.shape, x.dtype), np.zeros(objects.shape, np.bool_)
    for at, given in np.ndenumerate(objects):
        with suppress(TypeError, ValueError, OverflowError), warnings.catch_warnings(action="ignore"):
            value = np.array(given, object).astype(x.dtype)
            values[at], has_equal[at] = value, value.item() == given
    if not has_equal.any():
        return None
    same: AnyHandle = _equal(x, values) & has_equal
    if x.dtype.kind in "mM":  # no date is None to Python, and not equal to itself
        same = same | (elementwise.isnat(x) & has_equal & np.isnat(values))
    return same if is_equal else _xor(same, True)


def power(x1: Operand, x2: Operand) -> Any:
    """``x1 ** x2`` with numpy's own short cuts, which are faster than the general power and round differently."""
    if type(x2) in (int, float) and hasattr(x1, "dtype"):
        kind = x1.dtype.kind
        if x2 == 2 and (kind in "fc" or (kind in "biu" and type(x2) is int)):
            return elementwise.square(x1)
        if kind in "fc":
            if x2 == 0.5:
                return elementwise.sqrt(x1)
            if x2 == 1:
                return elementwise.positive(x1)
            if x2 == -1:
                return elementwise.reciprocal(x1)
    return elementwise.pow(x1, x2)


@cache
def _product() -> Function:
    """Return the product of matrices as nodes have it: what few programs need is loaded late."""
    from distarray.ops.contractions import matmul

    assert matmul._function is not None
    product: Function = unwrap(matmul._function)
    return product


def _matmul(x1: Operand, x2: Operand) -> Any:
    product = _product()
    made = product_at_call(product, x1, x2)
    return product(x1, x2) if made is None else made


def _matmul_in_place(x1: Operand, x2: Operand) -> Any:
    if not np.ndim(x1) or np.ndim(x2) < 2:
        raise ValueError(
            "inplace matrix multiplication requires the first operand to have at least one and the second at least two "
            f"dimensions: they have {np.ndim(x1)} and {np.ndim(x2)}"
        )
    return _matmul(x1, x2)


_equal = _mapped("equal")
_add = _mapped("add")
_subtract = _mapped("subtract")
_multiply = _mapped("multiply")
_divide = _mapped("divide")
_floor_divide = _mapped("floor_divide")
_remainder = _mapped("remainder")
_and = _mapped("bitwise_and")
_or = _mapped("bitwise_or")
_xor = _mapped("bitwise_xor")
_lshift = _mapped("bitwise_left_shift")
_rshift = _mapped("bitwise_right_shift")


def _times(
    multiply: Callable[[AnyHandle, Operand], AnyHandle], in_order: Callable[[Any, Any], tuple[Any, Any]]
) -> Callable[[AnyHandle, Operand], AnyHandle]:
    """Multiply, but for what numpy's ``*`` is with other classes of Python's and of its own: a number repeats lists and
    tuples, and a `numpy.matrix` has a product of matrices.
    """

    def operator(self: AnyHandle, other: Operand, /) -> AnyHandle:
        if type(other) not in _PLAIN:
            if isinstance(other, list | tuple) and is_scalar(self):
                return NotImplemented  # type: ignore[no-any-return]  # Python repeats it
            if isinstance(other, np.matrix) and self.ndim:
                # of which a vector is a row
                matrix = self.reshape((1, self.size)) if self.ndim == 1 else self  # type: ignore[attr-defined]
                if matrix.ndim != 2:
                    raise ValueError(f"matrix must be 2-dimensional, not of shape {self.shape}")
                return _matmul(*in_order(matrix, other))  # type: ignore[no-any-return]  # theirs
        made = multiply(self, other)
        if made is NotImplemented and not self.ndim and isinstance(other, list | tuple | str) and not is_scalar(self):
            # else Python would repeat it
            raise TypeError(f"an array without axes does not repeat a {type(other).__name__}")
        return made

    return operator


class Operators(Handle):
    """Operators gives `DistArray` the operators of Python."""

    __slots__ = ()

    __add__ = _forward(_add, np.add)
    __sub__ = _forward(_subtract, np.subtract)
    __mul__ = _times(_forward(_multiply, np.multiply), lambda x, other: (x, other))
    __truediv__ = _forward(_divide, np.divide)
    __floordiv__ = _forward(_floor_divide, np.floor_divide)
    __mod__ = _forward(_remainder, np.remainder)
    __pow__ = _forward(power, np.power)
    __matmul__ = _forward(_matmul, np.matmul)
    __and__ = _forward(_and, np.bitwise_and)
    __or__ = _forward(_or, np.bitwise_or)
    __xor__ = _forward(_xor, np.bitwise_xor)
    __lshift__ = _forward(_lshift, np.left_shift)
    __rshift__ = _forward(_rshift, np.right_shift)

    __radd__ = _reflected(_add, np.add)
    __rsub__ = _reflected(_subtract, np.subtract)
    __rmul__ = _times(_reflected(_multiply, np.multiply), lambda x, other: (other, x))
    __rtruediv__ = _reflected(_divide, np.divide)
    __rfloordiv__ = _reflected(_floor_divide, np.floor_divide)
    __rmod__ = _reflected(_remainder, np.remainder)
    __rpow__ = _reflected(elementwise.pow, np.power)
    __rmatmul__ = _reflected(_matmul, np.matmul)
    __rand__ = _reflected(_and, np.bitwise_and)
    __ror__ = _reflected(_or, np.bitwise_or)
    __rxor__ = _reflected(_xor, np.bitwise_xor)
    __rlshift__ = _reflected(_lshift, np.left_shift)
    __rrshift__ = _reflected(_rshift, np.right_shift)

    __iadd__ = _inplace(_add, np.add)
    __isub__ = _inplace(_subtract, np.subtract)
    __imul__ = _inplace(_multiply, np.multiply)
    __itruediv__ = _inplace(_divide, np.divide)
    __ifloordiv__ = _inplace(_floor_divide, np.floor_divide)
    __imod__ = _inplace(_remainder, np.remainder)
    __ipow__ = _inplace(power, np.power)
    __imatmul__ = _inplace(_matmul_in_place, np.matmul)
    __iand__ = _inplace(_and, np.bitwise_and)
    __ior__ = _inplace(_or, np.bitwise_or)
    __ixor__ = _inplace(_xor, np.bitwise_xor)
    __ilshift__ = _inplace(_lshift, np.left_shift)
    __irshift__ = _inplace(_rshift, np.right_shift)

    __lt__ = _compared("less", None)
    __le__ = _compared("less_equal", None)
    __gt__ = _compared("greater", None)
    __ge__ = _compared("greater_equal", None)
    __eq__ = _compared("equal", False)  # type: ignore[assignment]  # elementwise, as numpy's
    __ne__ = _compared("not_equal", True)  # type: ignore[assignment]

    def __hash__(self) -> int:
        # A number may be in a set and a key, as numpy's may; elementwise equality is no equality to hash by.
        if not is_scalar(self):
            raise TypeError(f"unhashable type: {type(self).__name__!r}")
        return hash(self.item())  # type: ignore[attr-defined]

    __neg__ = _unary(elementwise.negative)
    __pos__ = _unary(elementwise.positive)
    __abs__ = _unary(elementwise.abs)
    __invert__ = _unary(elementwise.bitwise_invert)

    def __divmod__(self, other: Operand, /) -> tuple[Self, Self]:
        if not is_operand(other):
            return _left_to(other, np.divmod, self, other)  # type: ignore[no-any-return]  # theirs
        made: tuple[Self, Self] = elementwise.divmod(self, other)
        return made

    def __rdivmod__(self, other: Operand, /) -> tuple[Self, Self]:
        if not is_operand(other):
            return _left_to(other, np.divmod, other, self)  # type: ignore[no-any-return]  # theirs
        made: tuple[Self, Self] = elementwise.divmod(other, self)
        return made


for _name, _operator in vars(Operators).items():
    if callable(_operator) and _operator.__name__ == "operator":
        # Python's errors and tracebacks say it.
        _operator.__name__, _operator.__qualname__ = _name, f"DistArray.{_name}"
