"""Writing: ``x[index] = value``, ``x += y``, ``x.at[index].set(value)``.

Everything that can be wrong is found before anything changes: index, environment, broadcast, cast. Then the base gets
its next version (`distarray.array.base.put`), and every alias sees it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from distarray.array.base import cast, put, read
from distarray.array.window import enter
from distarray.errors import EnvironmentMismatchError
from distarray.expr.bind import literal
from distarray.expr.expr import Environment, Expr, Scalar
from distarray.expr.indexing import Advanced, Basic, Index, parse_index
from distarray.expr.lens import Lens, compose
from distarray.ops import elementwise
from distarray.ops.indexing import Casting, Mode
from distarray.types import DType, HostArray, Shape

if TYPE_CHECKING:
    from distarray.array.array import DistArray

__all__ = ["At", "assign", "at", "update", "update_at"]

_SCALARS = frozenset({bool, int, float, complex})


def assign(x: DistArray, index: Index, value: Any) -> None:
    """``x[index] = value``.

    Raises
    ------
    ValueError
        If `x` is read-only, or `value` does not broadcast to what the index sees.
    IndexError, EnvironmentMismatchError, TypeError
        From the index, the environments, the cast: numpy's, where numpy has them.
    """
    enter()
    base = x._base
    version = base.current
    _check_writable(x)
    parsed = parse_index(index, x.shape)
    if type(parsed) is Basic:
        lens = compose(version.shape, x._lens, parsed.affine)
        if getattr(value, "_base", None) is base and value._lens == lens:
            # x[i] += v ends with x[i] = x[i], after the view has been written through.
            return
        if not parsed.is_view and not parsed.shape and _has_axes(value):
            raise ValueError("setting an array element with a sequence.")
        new = put(version, lens, _value(value, parsed.affine.shape, x.dtype, version.env, "setitem"))
    else:
        new = _scatter(version, x._lens, x._advanced(parsed), value)
    x._advance(new)


def _has_axes(value: Any) -> bool:
    return bool(value.shape if hasattr(value, "shape") else np.ndim(value))


def _check_writable(x: DistArray) -> None:
    if x._readonly:
        raise ValueError("assignment destination is read-only")


def _scatter(
    version: Expr, lens: Lens, index: Advanced, value: Any, mode: Mode = "set", casting: Casting = "same_kind"
) -> Expr:
    """The version after a write at integer arrays or a mask; `casting` says how an update may cast back."""
    from distarray.array.indexing import written

    seen = read(version, lens)
    if mode == "set" and not hasattr(type(value), "__dx_node__"):
        value = _cast_host(value, seen.dtype)
    return put(version, lens, written(seen, index, value, mode, casting))


def _value(value: Any, shape: Shape, dtype: DType, env: Environment, name: str) -> Expr | Scalar:
    """What is written, as a node that broadcasts to `shape`, or as a number of `dtype`.

    Casts as numpy's assignment does: anything goes, with a warning where imaginary parts get lost.
    """
    if type(value) in _SCALARS and dtype.kind in "biufc":
        return _scalar(value, dtype)
    node: Expr
    if type(value) is Expr:
        node = value
    else:
        enter_node = getattr(type(value), "__dx_node__", None)
        if enter_node is None:
            return _host_value(value, shape, dtype, env, name)
        node = enter_node(value)
    if node.env is not env and node.env != env:
        raise EnvironmentMismatchError(
            f"{name}: the array lives in {env}, the value in {node.env}; move one with x.to_team(...) or "
            "x.to_device(...)"
        )
    _check_broadcast(node.shape, shape)
    if node.dtype.kind == "c" and dtype.kind not in "cb":
        _warn_of_lost_imaginary_part()
        return cast(node, dtype)
    if node.dtype.kind in "mM" or dtype.kind in "mM":
        # Numbers cast to anything; what dates and time spans cast to, numpy knows.
        np.empty(0, dtype)[...] = np.empty(0, node.dtype)
    return node


def _scalar(value: Any, dtype: DType) -> Scalar:  # Python's, numpy's, or what numpy makes a number of
    """`value` cast to a number of `dtype` by numpy's own assignment, with its errors and warnings."""
    holder = np.zeros((), dtype)
    holder[()] = value
    number: Scalar = holder.item()
    return number


def _host_value(value: Any, shape: Shape, dtype: DType, env: Environment, name: str) -> Expr | Scalar:
    host = np.asarray(value)
    _check_broadcast(host.shape, shape)
    cast = _cast_host(host, dtype)
    return literal(cast, env, name) if isinstance(cast, np.ndarray) else cast


def _cast_host(value: Any, dtype: DType) -> HostArray | Scalar:
    """Host data as numpy casts them in an assignment, with its errors and its warnings."""
    host = np.asarray(value)
    if host.ndim == 0 and dtype.kind in "biufc":
        # Python's complex number is an error where numpy's is a warning.
        return _scalar(host[()] if isinstance(value, np.ndarray) else value, dtype)
    if host.dtype == dtype:
        return host
    target = np.empty(host.shape, dtype)
    target[...] = host
    return target


def _check_broadcast(value: Shape, shape: Shape) -> None:
    own = value
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    if len(own) > len(shape) or any(n not in (1, m) for n, m in zip(own[::-1], shape[::-1])):
        raise ValueError(f"could not broadcast input array from shape {_text(value)} into shape {_text(shape)}")


def _text(shape: Shape) -> str:
    return str(shape).replace(" ", "")


def _warn_of_lost_imaginary_part() -> None:
    warnings.warn(
        "Casting complex values to real discards the imaginary part", np.exceptions.ComplexWarning, stacklevel=5
    )


# ------------------------------------------------------------------------------------------------- augmented


def update(x: DistArray, function: Callable[[Any, Any], Any], other: Any, ufunc: str) -> DistArray:
    """``x = function(x, other)`` in place; returns `x` itself.

    Parameters
    ----------
    function
        Makes the new elements.
    ufunc
        Name of numpy's function, whose error is raised where the result does not cast or broadcast back.
    """
    node = x.__dx_node__()
    _check_writable(x)
    enter_node = getattr(type(other), "__dx_node__", None)
    result: Expr = function(node, other if enter_node is None else enter_node(other))
    if result.shape != node.shape or not np.can_cast(result.dtype, node.dtype, "same_kind"):
        _refuse(ufunc, node, other, result)
    x._write(result)
    return x


def _refuse(ufunc: str, node: Expr, other: Any, result: Expr) -> NoReturn:
    """Raise what numpy raises."""
    if result.shape == node.shape:
        operand = other if type(other) in _SCALARS else np.empty((), getattr(other, "dtype", None))
        shape: Shape = ()
        if ufunc != "matmul":
            # numpy's own error
            function: np.ufunc = getattr(np, ufunc)
            function(*(np.ones(shape, node.dtype), operand)[: function.nin], out=np.empty(shape, node.dtype))
        raise TypeError(
            f"Cannot cast ufunc {ufunc!r} output from {result.dtype!r} to {node.dtype!r} with casting rule 'same_kind'"
        )
    raise ValueError(
        f"non-broadcastable output operand with shape {_text(node.shape)} doesn't match the broadcast shape "
        f"{_text(result.shape)}"
    )


# ------------------------------------------------------------------------------------------------ functional


class At:
    """``x.at``: updates that return a new array and leave `x` alone."""

    __slots__ = ("_array",)

    def __init__(self, array: DistArray) -> None:
        self._array = array

    def __getitem__(self, index: Index) -> Updates:
        return Updates(self._array, index)


def at(x: DistArray, /) -> At:
    """``dx.at(x)[index].set(value)``: the same as ``x.at[index].set(value)``."""
    return At(x)


class Updates:
    """What can be done at one index of an array; each method returns a new array.

    Where integer arrays name an element several times, ``set`` keeps the last value in index order, and all others
    accumulate.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: DistArray, index: Index) -> None:
        self._array = array
        self._index = index

    def set(self, value: Any, /) -> DistArray:
        """`value` at the index."""
        return self._combined("set", value)

    def add(self, value: Any, /) -> DistArray:
        """Elements plus `value` at the index."""
        return self._combined("add", value)

    def subtract(self, value: Any, /) -> DistArray:
        """Elements minus `value` at the index."""
        return self._combined("subtract", value)

    def multiply(self, value: Any, /) -> DistArray:
        """Elements times `value` at the index."""
        return self._combined("multiply", value)

    def divide(self, value: Any, /) -> DistArray:
        """Elements over `value` at the index."""
        return self._combined("divide", value)

    def power(self, value: Any, /) -> DistArray:
        """Elements to the power of `value` at the index."""
        return self._combined("power", value)

    def min(self, value: Any, /) -> DistArray:
        """The smaller of the elements and `value` at the index."""
        return self._combined("minimum", value)

    def max(self, value: Any, /) -> DistArray:
        """The larger of the elements and `value` at the index."""
        return self._combined("maximum", value)

    def _combined(self, mode: Mode, value: Any) -> DistArray:
        x = self._array
        return x._boxed(_updated(x, x.__dx_node__(), (), self._index, mode, value))


def update_at(x: DistArray, ufunc: str, index: Index, *value: Any) -> None:
    """``np.<ufunc>.at(x, index, value)``: in place, each repetition of an index counts, and results cast to anything.

    Raises
    ------
    ValueError
        If `x` is read-only, or the value does not broadcast.
    IndexError, EnvironmentMismatchError, TypeError
        From the index, the environments, the dtypes: numpy's, where numpy has them.
    """
    enter()
    _check_writable(x)
    # A function of one operand is written with a value that nobody looks at.
    operand = value[0] if value else False
    x._advance(_updated(x, x._base.current, x._lens, index, ufunc, operand, "unsafe"))


def _updated(
    x: DistArray, version: Expr, lens: Lens, index: Index, mode: Mode, value: Any, casting: Casting = "same_kind"
) -> Expr:
    """The version of a base after an update at an index of what `x` sees of it through `lens`."""
    parsed = parse_index(index, x.shape)
    if type(parsed) is not Basic:
        return _scatter(version, lens, x._advanced(parsed), value, mode, casting)
    through = compose(version.shape, lens, parsed.affine)
    if mode != "set":
        value = _joined(read(version, through), mode, value, casting)
    return put(version, through, _value(value, parsed.affine.shape, x.dtype, version.env, f"at.{mode}"))


def _joined(seen: Expr, mode: Mode, value: Any, casting: Casting) -> Expr:
    """What stands at a basic index, joined with `value`, which must cast back."""
    function: Callable[..., Any] = getattr(elementwise, mode)
    enter_node = getattr(type(value), "__dx_node__", None)
    operands = (seen, value if enter_node is None else enter_node(value))
    result: Expr = function(*operands[: getattr(np, mode).nin])
    if result.shape != seen.shape or not np.can_cast(result.dtype, seen.dtype, casting):
        _refuse(mode, seen, value, result)
    return result
