"""Writing: ``x[index] = value``, ``x += y``, ``x.at[index].set(value)``.

Everything that can be wrong is found before anything changes: index, environment, broadcast, cast. Then the base gets
its next version (`distarray.array.access.put`), and every alias sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import numpy as np

from distarray.arguments import naming
from distarray.array import elements
from distarray.array.access import cast, put, read
from distarray.array.by_numpy import are_integers, may_have_arrays, only_link, pick, update_by_numpy
from distarray.array.environment import forced_parts
from distarray.array.following import meet, settled
from distarray.array.handle import AnyHandle, Handle, is_scalar
from distarray.array.indexing import placed, with_integers, written
from distarray.array.lifetime import is_alone
from distarray.array.versions import Base
from distarray.array.window import enter
from distarray.deferral import errors_wait
from distarray.expr.bind import bind_reshape, lazily_read, literal, nested
from distarray.expr.broadcasting import shape_within
from distarray.expr.expr import SCALARS, Environment, Expr, Scalar
from distarray.expr.indexing import Advanced, Basic, Index, known_index, parse_index
from distarray.expr.lens import Lens, compose
from distarray.ops import elementwise
from distarray.ops.indexing import Mode
from distarray.types import Casting, DType, HostArray, Shape

#: Classes of host data that numpy casts otherwise than the arrays that it makes of them.
_CAST_AS_GIVEN = (list, tuple, np.generic, int, float, complex)
#: Numbers of numpy, dates are none.
_NUMPYS_NUMBERS = (np.number, np.bool_)


def assign(x: Handle, index: Index, value: Any) -> None:
    """Do what ``x[index] = value`` does.

    Raises
    ------
    ValueError
        If `x` is read-only, or `value` does not broadcast to what the index sees.
    IndexError, EnvironmentMismatchError, TypeError
        From the index, the environments, the cast: numpy's, where numpy has them.
    """
    base = x._base
    _check_writable(x)
    if are_integers(index) and not x._lens and _is_element_written(base, index, value):
        return
    parsed = known_index(index, x.shape)
    if parsed is None:
        if may_have_arrays(index):
            index = with_integers(index, len(x.shape), computes=False)
            if type(value) in SCALARS and x.dtype.kind in "biufc":
                value = _scalar(value, x.dtype)  # once: it may warn
            if may_have_arrays(index) and _is_scattered_here(x, index, value):
                return
        parsed = parse_index(index, x.shape)
    if type(parsed) is Basic:
        lens = compose(base.shape, x._lens, parsed.affine)
        if getattr(value, "_base", None) is base and value._lens == lens:
            # x[i] += v ends with x[i] = x[i], after the view has been written through.
            return
        is_element = not parsed.is_view and not parsed.affine.shape and type(value) not in SCALARS
        is_fitting = not is_element or (isinstance(value, Handle) and not value.shape)
        if not is_element and x.dtype.kind in "biufc" and _is_number(value):
            value = _scalar(value, x.dtype)  # once: it may warn
        if is_fitting and _is_written_here(base, lens, parsed.affine.shape, value):
            return
        enter()
        version = base.current
        # What was pending may have been computed just now, and would wait for a window again.
        if is_fitting and version.memo is not None and _is_written_here(base, lens, parsed.affine.shape, value):
            return
        if is_element:
            value = _element(value, x.dtype)
        new = _value(value, parsed.affine.shape, x.dtype, version.env, "setitem")
        x._advance(lambda version: put(version, lens, new))
    else:
        assert type(parsed) is Advanced
        enter()
        if parsed.index_shape == () and type(value) not in SCALARS:  # an index of integers, as numpy has it
            if not parsed.shape:
                value = _element(value, x.dtype)
            elif isinstance(value, list | tuple):
                _check_depth(np.ndim(value), len(parsed.shape))
        index = placed(x, parsed)
        x._advance(lambda version: _scatter(version, x._lens, index, value))


def _is_written_here(base: Base, lens: Lens, shape: Shape, value: Any) -> bool:
    """Write what a lens sees of a base, if that and the value are small and here; return whether that was done."""
    link = only_link(base, lens)
    if link is None or forced_parts.get() is not None:
        return False
    if _is_number(value):
        if base.dtype.kind not in "biufc":
            return False
    else:
        block: HostArray | None = None
        if type(value) is np.ndarray:
            block = value
        elif isinstance(value, Handle) and value._base.env is base.env:
            block = value._ready()
        if block is None or (block.dtype != base.dtype and not _is_widened(block.dtype, base.dtype)):
            return False
        _check_broadcast(block.shape, shape)
        value = block
    return 0 in shape or base.write(link, value, base.version, is_alone)


def _is_widened(dtype: DType, into: DType) -> bool:
    """Return whether numbers of a dtype are cast to another one without loss, and so without warnings."""
    return dtype.kind in "biufc" and into.kind in "biufc" and np.can_cast(dtype, into, "safe")


def _is_element_written(base: Base, at: int | tuple[int, ...], value: Any) -> bool:
    """Write a number at a position, where that takes no cast that warns: in two thirds of the time of `assign`, which
    does the rest; return whether that was done.
    """
    block = base.block
    if block is None or block.ndim != (1 if type(at) is int else len(at)) or forced_parts.get() is not None:  # type: ignore[arg-type]
        return False
    kind, dtype = type(value), block.dtype
    if isinstance(value, Handle):
        number = value._ready()
        if number is None or number.shape or number.dtype != dtype or value._base.env is not base.env:
            return False
        value = number
    elif not (dtype.char == "d" and kind in (float, int)) and not (kind is int and dtype.kind in "iu"):
        return False
    return base.write_element(at, value, is_alone)


def _is_scattered_here(x: Handle, index: Index, value: Any) -> bool:
    """Write at an index with arrays, if that and the value are small and here; return whether that was done."""
    base, link = x._base, only_link(x._base, x._lens)
    since = base.version
    others = (value,) if isinstance(value, Handle) else ()
    if link is None or (found := pick(x, index, *others)) is None:
        return False
    items, old = found
    if others or type(value) is np.ndarray:
        block = value._ready() if others else value
        if block is None or not np.can_cast(block.dtype, old.dtype, "safe"):
            return False
        if block.shape != old.shape:
            try:
                block = np.broadcast_to(block, old.shape)
            except ValueError:
                return False  # the way through nodes says so
    elif type(value) in SCALARS and old.dtype.kind in "biufc":
        block = value
    else:
        return False
    items, block = tuple([_apart(item, x) for item in items]), _apart(block, x)

    def fill(memory: HostArray | None) -> HostArray:
        assert memory is not None
        memory[items] = block
        return memory

    return base.write(link, fill, since, is_alone)


def _apart(value: Any, x: Handle) -> Any:
    """Return what is read while `x` is written: a copy of an array that may be of the same memory."""
    if type(value) is not np.ndarray or ((memory := x._ready()) is not None and not np.may_share_memory(value, memory)):
        return value
    return value.copy()


def _element(value: Any, dtype: DType) -> Any:
    """Return `value` as one element of `dtype`, with numpy's own errors, which changed with its versions."""
    one = np.empty(1, dtype)
    if type(value) is Expr or hasattr(type(value), "__dx_node__"):
        if value.shape:
            one[0] = _dummy(value)
        return value
    with naming(value=value):
        one[0] = value
    return one[0]


def _check_writable(x: Handle) -> None:
    if x._readonly:
        raise ValueError("assignment destination is read-only")


def _scatter(
    version: Expr, lens: Lens, index: Advanced, value: Any, mode: Mode = "set", casting: Casting = "same_kind"
) -> Expr:
    """Return the version after a write at integer arrays or a mask; `casting` says how an update may cast back."""
    seen = read(version, lens)
    if mode == "set" and not hasattr(type(value), "__dx_node__"):
        # At integer arrays numpy casts what has an array as that array: a single date is an array of one there, but
        # among dates, whose units have to agree.
        is_one = isinstance(value, np.generic) and seen.dtype.kind in "mM"
        value = _cast_host(np.asarray(value) if hasattr(value, "__array__") and not is_one else value, seen.dtype)
    elif mode == "set":  # at a mask numpy refuses more than at integers
        _check_times(value, seen.dtype, [0] if index.index_shape is not None else [True])
    return put(version, lens, written(seen, index, value, mode, casting))


def _value(value: Any, shape: Shape, dtype: DType, env: Environment, name: str) -> Expr | Scalar:
    """Return what is written, as a node that broadcasts to `shape`, or as a number of `dtype`.

    Casts as numpy's assignment does: anything goes, with a warning where imaginary parts get lost.
    """
    if type(value) in SCALARS and dtype.kind in "biufc":
        return _scalar(value, dtype)
    node: Expr
    if dtype.kind in "iu" and isinstance(value, Handle) and value.dtype.kind in "fmM" and _is_known_number(value):
        value = elements.item(value.__dx_node__())[()]  # numpy refuses an infinite one as an integer, and dates
    value = nested(value)
    if type(value) is Expr:
        node = value
    else:
        enter_node = getattr(type(value), "__dx_node__", None)
        found = lazily_read(value, env) if enter_node is None else enter_node(value)
        if found is None:
            return _host_value(value, shape, dtype, env, name)
        node = found
    if node.env is not env and node.env != env:
        node = settled(value, node, env, name, "the value")
    _check_broadcast(node.shape, shape)
    if node.dtype.kind == "c" and dtype.kind not in "cb":
        elementwise.warn_of_lost_imaginary_part(node.dtype, dtype)
        return cast(node, dtype)
    _check_times(value, dtype, ...)
    return node


def _check_times(value: Any, dtype: DType, index: Any) -> None:
    """Raise numpy's error where an array, or the scalar that numpy has in its place, is not written among elements of
    a dtype. Numbers cast to anything; what dates and time spans cast to, numpy knows.
    """
    if dtype.kind in "mM" or value.dtype.kind in "mM":
        one = np.zeros(1, value.dtype)
        np.empty(1, dtype)[index] = one[0] if isinstance(value, Handle) and is_scalar(value) else one


def _is_known_number(value: Handle) -> bool:
    """Return whether numpy has a number in place of an array, and its value is here or may be asked for at the call."""
    return is_scalar(value) and (value._ready() is not None or not errors_wait())


def _is_number(value: Any) -> bool:
    return type(value) in SCALARS or isinstance(value, _NUMPYS_NUMBERS)


def _scalar(value: Any, dtype: DType) -> Scalar:  # Python's, numpy's, or what numpy makes a number of
    """Return `value` cast to a number of `dtype` by numpy's own assignment, with its errors and warnings."""
    if type(value) is float and dtype.char == "d":
        return value
    holder = np.zeros((), dtype)
    holder[()] = value
    number: Scalar = holder.item()
    return number


def _host_value(value: Any, shape: Shape, dtype: DType, env: Environment, name: str) -> Expr | Scalar:
    with naming(value=value):
        host = np.asarray(value)
    if isinstance(value, list | tuple):
        _check_depth(host.ndim, len(shape))
    # What is no array is cast as it is: numpy makes no number of a single date, and of an array of one it does.
    cast = _cast_host(value if isinstance(value, _CAST_AS_GIVEN) or dtype.kind in "mM" else host, dtype)
    _check_broadcast(host.shape, shape)
    return literal(cast, env, name) if isinstance(cast, np.ndarray) else cast


def _check_depth(depth: int, ndim: int) -> None:
    """Refuse sequences in one another that are deeper than what they are written to has axes, as numpy does."""
    if depth > ndim:
        raise ValueError(
            "setting an array element with a sequence. The requested array would exceed the maximum number of "
            f"dimension of {ndim}."
        )


def _cast_host(value: Any, dtype: DType) -> HostArray | Scalar:
    """Return host data as numpy casts them in an assignment, with its errors and its warnings."""
    host = np.asarray(value)
    if host.ndim == 0 and dtype.kind in "biufc":
        # Python's complex number is an error where numpy's is a warning.
        return _scalar(value, dtype)
    if host.dtype == dtype:
        return host
    target = np.empty(host.shape, dtype)
    # Numbers, nested ones too, are cast as they are: numpy refuses a complex one where it casts complex arrays.
    target[...] = value
    return target


def _check_broadcast(value: Shape, shape: Shape) -> None:
    if value != shape and shape_within(value, shape) is None:
        raise ValueError(f"could not broadcast input array from shape {_text(value)} into shape {_text(shape)}")


def _text(shape: Shape) -> str:
    return str(shape).replace(" ", "")


# ------------------------------------------------------------------------------------------------- augmented


def update(x: AnyHandle, function: Callable[[Any, Any], Any], other: Any, ufunc: str) -> AnyHandle:
    """Compute ``x = function(x, other)`` in place; returns `x` itself, or a new array where numpy has a scalar, not an
    array.

    Parameters
    ----------
    function
        Makes the new elements.
    ufunc
        Name of numpy's function, whose error is raised where the result does not cast or broadcast back.
    """
    if is_scalar(x):
        return function(x, other)  # type: ignore[no-any-return]  # boxed as x is
    since = x._base.expr  # before the node is: what another thread writes in between is read again
    node = x.__dx_node__()
    _check_writable(x)
    enter_node = getattr(type(other), "__dx_node__", None)
    operand = other if enter_node is None else enter_node(other)
    if type(operand) is Expr and operand.env is not node.env:
        met = meet((x, other), (node, operand), None)
        if met is not None:  # the array itself may have moved
            (node, operand), _ = met
    result, is_fitting = _updated_by(function, ufunc, node, operand, "same_kind")
    if not is_fitting:
        # What is not refused is a product with more axes of one element in front, which numpy's output does without.
        result, product = bind_reshape(result, node.shape), function
        function = lambda seen, operand: bind_reshape(product(seen, operand), node.shape)  # noqa: E731
    x._write(result, since, lambda seen: function(seen, operand))
    return x


def _updated_by(
    function: Callable[..., Any], ufunc: str, node: Expr, other: Any, casting: Casting
) -> tuple[Expr, bool]:
    """Return the elements that a function makes of a node and an operand, and whether they cast and broadcast back to
    it; where numpy refuses that, its error is raised.
    """
    try:
        result: Expr = function(*(node, other)[: getattr(np, ufunc).nin])
    except ValueError as error:
        if type(error) is ValueError:
            _refuse(ufunc, node, other, casting)
        raise
    is_fitting = result.shape == node.shape and np.can_cast(result.dtype, node.dtype, casting)
    if not is_fitting:
        _refuse(ufunc, node, other, casting)
    return result, is_fitting


def _refuse(ufunc: str, node: Expr, other: Any, casting: Casting) -> None:
    """Raise what numpy raises of an update in place that does not cast or broadcast back.

    numpy itself is asked, on arrays of the same shapes that take no memory: of a call that is wrong in several ways it
    says the same as numpy.
    """
    function: np.ufunc = getattr(np, ufunc)
    operands = (_dummy(node), _dummy(other) if hasattr(other, "dtype") else other)[: function.nin]
    function(*operands, out=_dummy(node), casting=casting)


def _dummy(x: Any) -> HostArray:
    """Return an array of the shape and dtype of `x` that takes one element of memory."""
    return np.lib.stride_tricks.as_strided(np.ones((), x.dtype), x.shape, (0,) * len(x.shape))


# ------------------------------------------------------------------------------------------------ functional


class At(Generic[AnyHandle]):
    """An At is ``x.at``: its updates return a new array and leave `x` alone."""

    __slots__ = ("_array",)

    def __init__(self, array: AnyHandle) -> None:
        self._array = array

    def __getitem__(self, index: Index) -> Updates[AnyHandle]:
        return Updates(self._array, index)


def at(x: AnyHandle, /) -> At[AnyHandle]:
    """Return what ``x.at`` gives: ``dx.at(x)[index].set(value)`` is ``x.at[index].set(value)``."""
    return At(x)


def _updating(name: str, mode: Mode, doc: str) -> Callable[[Updates[AnyHandle], Any], AnyHandle]:
    """Return the method of `Updates` of this name, by which it is pickled and shown."""

    def update(self: Updates[AnyHandle], value: Any, /) -> AnyHandle:
        return self._combined(mode, value)

    update.__name__, update.__qualname__, update.__doc__ = name, f"Updates.{name}", doc
    return update


class Updates(Generic[AnyHandle]):
    """Updates are what can be done at one index of an array; each method returns a new array.

    Where integer arrays name an element several times, ``set`` keeps the last value in index order, and all others
    accumulate.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: AnyHandle, index: Index) -> None:
        self._array = array
        self._index = index

    set = _updating("set", "set", "Return `value` at the index.")
    add = _updating("add", "add", "Return the elements plus `value` at the index.")
    subtract = _updating("subtract", "subtract", "Return the elements minus `value` at the index.")
    multiply = _updating("multiply", "multiply", "Return the elements times `value` at the index.")
    divide = _updating("divide", "divide", "Return the elements over `value` at the index.")
    power = _updating("power", "power", "Return the elements to the power of `value` at the index.")
    min = _updating("min", "minimum", "Return the smaller of the elements and `value` at the index.")
    max = _updating("max", "maximum", "Return the larger of the elements and `value` at the index.")

    def _combined(self, mode: Mode, value: Any) -> AnyHandle:
        x = self._array
        return x._on(_updated(x, x.__dx_node__(), (), parse_index(self._index, x.shape), mode, value))


def update_at(x: Handle, ufunc: str, index: Index, *value: Any) -> None:
    """Compute ``np.<ufunc>.at(x, index, value)`` in place: each repetition of an index counts, and results cast to
    anything.

    Raises
    ------
    ValueError
        If `x` is read-only, or the value does not broadcast.
    IndexError, EnvironmentMismatchError, TypeError
        From the index, the environments, the dtypes: numpy's, where numpy has them.
    """
    _check_writable(x)
    if may_have_arrays(index) and update_by_numpy(getattr(np, ufunc).at, x, (index, *value)):
        return
    enter()
    # A function of one operand is written with a value that nobody looks at. Numbers have dtypes of their own here.
    operand: Any = value[0] if value else False
    if not hasattr(operand, "dtype"):
        with naming(b=operand):
            operand = np.asarray(operand)
    parsed = parse_index(index, x.shape)
    if len(operand.shape) > parsed.ndim:
        raise ValueError("array is not broadcastable to correct shape")
    x._advance(lambda version: _updated(x, version, x._lens, parsed, ufunc, operand, "unsafe"))


def _updated(
    x: Handle,
    version: Expr,
    lens: Lens,
    parsed: Basic | Advanced,
    mode: Mode,
    value: Any,
    casting: Casting = "same_kind",
) -> Expr:
    """Return the version of a base after an update at an index of what `x` sees of it through `lens`."""
    if type(parsed) is Advanced:
        return _scatter(version, lens, placed(x, parsed), value, mode, casting)
    assert type(parsed) is Basic
    through = compose(version.shape, lens, parsed.affine)
    if mode != "set":
        value = _joined(read(version, through), mode, value, casting)
    return put(version, through, _value(value, parsed.affine.shape, x.dtype, version.env, f"at.{mode}"))


def _joined(seen: Expr, mode: Mode, value: Any, casting: Casting) -> Expr:
    """Return what stands at a basic index, joined with `value`, which must cast back."""
    function: Callable[..., Any] = getattr(elementwise, mode)
    enter_node = getattr(type(value), "__dx_node__", None)
    operand = value if enter_node is None else enter_node(value)
    result, is_fitting = _updated_by(function, mode, seen, operand, casting)
    assert is_fitting, f"{mode} of {seen.dtype}{seen.shape} in place: numpy takes what is refused here"
    return result
