"""Arrays made from the global index alone: each part is made where it lies, and equals the global array's bit for bit.

The functions take an `Environment` and the sharding that the user asked for, and return bare nodes: which team and
device are meant, and what a handle is, the array layer knows. Fill values, starts and steps are run-time parameters
(`Expr.runtime`), so that plans are shared. All operations here are repeatable: nothing of them is worth keeping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from distarray.arguments import count, diagonal, host_array, integer, number, parse_shape, shown
from distarray.dtypes import as_dtype
from distarray.expr.affine import Affine
from distarray.expr.bind import bind_create, bind_get
from distarray.expr.expr import Environment, Expr, Scalar, cut_of
from distarray.expr.op import Op, declare
from distarray.expr.rewrite import FULL
from distarray.ops.families import Array, one_array
from distarray.sharding.sharding import Sharding
from distarray.types import DType, DTypeLike, Shape

EMPTY = declare("empty", "create", repeatable=True)
#: runtime: `ArangeValues`
ARANGE = declare("arange", "create", repeatable=True)
#: runtime: `LinspaceValues`
LINSPACE = declare("linspace", "create", repeatable=True)
#: runtime: the diagonal k of the ones
EYE = declare("eye", "create", repeatable=True)
#: runtime: the last diagonal k of the ones, or True
TRI = declare("tri", "create", repeatable=True)


class ArangeValues(NamedTuple):
    """An ArangeValues is the first two elements of an ``arange``, as numpy scalars of its dtype; the others follow from
    them.
    """

    first: np.generic
    second: np.generic


class LinspaceValues(NamedTuple):
    """A LinspaceValues is what every element of a ``linspace`` is computed from, in numpy's own steps.

    ``index * step + start``, or ``index / div * step + start`` where the step underflows to zero; the last element of
    several is `stop` if `has_endpoint`. All computed in `dtype`, which is floating.
    """

    start: np.generic
    stop: np.generic
    step: np.generic
    div: int  # 0: the step is exact
    num: int
    has_endpoint: bool
    dtype: str


def fill_value_of(value: Any, dtype: DType) -> np.generic:  # a Python or numpy scalar, or an array without axes
    """Return `value` as a numpy scalar of `dtype`, cast as ``numpy.full`` casts it.

    Raises
    ------
    OverflowError
        If a Python integer does not fit.
    """
    holder = np.empty(1, dtype)
    np.copyto(holder, value, casting="unsafe")
    return holder[0]


def constant(shape: Shape, value: Any, dtype: DType, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return a node whose elements all are `value`, cast to `dtype`; `shape` is one already, unlike that of `full`."""
    return bind_create(FULL, shape, dtype, env, (), fill_value_of(value, dtype), pin)


def operand_node(operand: Expr | Scalar, env: Environment) -> Expr:
    """Return the node of an operand, which may be a number: it has a dtype of its own then, as numpy's arrays of it."""
    return operand if type(operand) is Expr else constant((), operand, as_dtype(np.asarray(operand).dtype), env)


def empty(shape: Any, dtype: DTypeLike | None, env: Environment) -> Expr:
    """Return an array of `shape` with arbitrary elements."""
    return bind_create(EMPTY, parse_shape(shape), as_dtype(dtype), env)


def full(shape: Any, fill_value: Any, dtype: DTypeLike | None, env: Environment) -> Expr:
    """Return an array of `shape` with one value; without a dtype the value's own."""
    made = host_array(fill_value, "fill_value").dtype if dtype is None else dtype
    wanted = as_dtype(made)
    return constant(parse_shape(shape), fill_value, wanted, env)


def zeros(shape: Any, dtype: DTypeLike | None, env: Environment) -> Expr:
    """Return an array of `shape` filled with zeros, double by default."""
    return full(shape, 0, np.float64 if dtype is None else dtype, env)


def arange(start: Any, stop: Any, step: Any, dtype: DTypeLike | None, env: Environment) -> Expr:
    """Return evenly spaced values from `start` up to, without, `stop`; from 0 up to `start` if `stop` is None.

    After a date, a number or a time span as `stop` counts from `start`.

    Raises
    ------
    ZeroDivisionError
        If `step` is 0; ValueError of dates and time spans.
    """
    step = 1 if step is None else step
    wanted = _dates_of((start, stop, step)) if dtype is None else as_dtype(dtype)
    if wanted is not None and wanted.kind in "mM" and np.datetime_data(wanted)[0] == "generic":
        given = [v for v in (start, stop, step) if v is not None and not isinstance(v, int)]
        found = _dates_of([v if hasattr(v, "dtype") else np.asarray(v, wanted)[()] for v in given])
        if found is not None:  # the unit is that of what is given
            wanted = as_dtype(found.str.replace(f"{found.kind}8", f"{wanted.kind}8"))
    if stop is None:
        if wanted is not None and wanted.kind == "M":
            raise ValueError("arange requires both a start and a stop for NumPy datetime64 ranges")
        start, stop = 0, start
    if wanted is not None and wanted.kind in "mM":
        spans = np.dtype(wanted.str.replace("M8", "m8"))
        start = _date(start, wanted)
        if wanted.kind == "M" and not isinstance(stop, str | np.datetime64):
            stop = start + _date(stop, spans)
        stop, step = _date(stop, wanted), _date(step, spans)
        if np.isnat([start, stop]).any() or np.isnat(step):
            raise ValueError("arange: cannot use NaT (not-a-time) datetime values")
        if not step:
            raise ValueError("arange: step cannot be zero")
        length = -(-int((stop - start).astype(np.int64)) // int(step.astype(np.int64)))
    else:
        number(start, "start"), number(stop, "stop"), number(step, "step")
        if wanted is None:
            # numpy's rule: at least its default integer
            wanted = as_dtype(np.result_type(np.intp, *(np.asarray(v).dtype for v in (start, stop, step))))
        # numpy's own count: Python arithmetic of what was given, rounded up
        if wanted.kind != "c" and any(isinstance(v, complex | np.complexfloating) for v in (start, stop, step)):
            raise TypeError("must be real number, not complex")
        length = _length(start, stop, step)
    length = max(length, 0)
    if wanted.kind == "b" and length > 2:
        raise TypeError("arange() is only supported for booleans when the result has at most length 2.")
    second = start + step if length > 1 else start
    values = ArangeValues(fill_value_of(start, wanted), fill_value_of(second, wanted))
    return bind_create(ARANGE, (length,), wanted, env, (), values)


def _length(start: Any, stop: Any, step: Any) -> int:
    """Return how many numbers a range has, as numpy counts them; below zero if it has none."""
    ratio = (stop - start) / step
    if isinstance(ratio, complex):
        return min(math.ceil(ratio.real), math.ceil(ratio.imag))
    if math.isinf(ratio):
        raise ValueError(f"arange: Maximum allowed size exceeded: from {start} to {stop} by {step}")
    if not ratio and stop != start:  # too small for a float: something, in one direction or the other
        return int(math.copysign(1, ratio))
    return math.ceil(ratio)


def _date(value: Any, dtype: DType) -> Any:
    """Return a date or a time span, of `dtype`; numpy's error of its numbers, but for integers that are time spans."""
    held = getattr(value, "dtype", dtype)
    if held.kind not in ("miu" if dtype.kind == "m" else "M"):
        raise ValueError(f"Could not convert object to NumPy {dtype.name.partition('64')[0]}: {shown(value)}")
    return np.asarray(value, dtype)[()]


def _dates_of(values: Iterable[Any]) -> DType | None:
    """Return the dtype of a range of dates, or of time spans, with the finest unit among them; None without any."""
    found = [v.dtype for v in values if isinstance(v, np.generic) and v.dtype.kind in "mM"]
    if any(d.kind == "M" for d in found):
        found = [np.dtype(d.str.replace("m8", "M8")) for d in found]
    return as_dtype(np.result_type(*found)) if found else None


def linspace(start: Any, stop: Any, num: int, dtype: DTypeLike | None, endpoint: bool, env: Environment) -> Expr:
    """Return `num` evenly spaced values from `start` to `stop`, which is the last one if `endpoint`.

    `start` and `stop` are scalars.
    """
    num = count(num, "num")
    number(start, "start"), number(stop, "stop")
    div = num - 1 if endpoint else num
    with np.errstate(all="ignore"):
        floating = as_dtype(np.linspace(start, stop, 0).dtype)
    wanted = floating if dtype is None else as_dtype(dtype)
    first, last = np.asarray(start), np.asarray(stop)
    with np.errstate(all="ignore"):
        delta = np.subtract(last, first, dtype=type(floating))
        step = delta / div if div > 0 else delta
    is_lost = div > 0 and bool(step == 0)
    values = LinspaceValues(
        first.reshape(1)[0],
        last.reshape(1)[0],
        (delta if is_lost else step)[()],
        div if is_lost else 0,
        num,
        bool(endpoint) and num > 1,
        floating.str,
    )
    return bind_create(LINSPACE, (num,), wanted, env, (), values)


def eye(n_rows: int, n_cols: int | None, k: int, dtype: DTypeLike | None, env: Environment) -> Expr:
    """Return a matrix with ones on its `k`-th diagonal and zeros elsewhere, double by default."""
    n = count(n_rows, "n_rows", truths=False)
    shape = parse_shape((n, n if n_cols is None else count(n_cols, "n_cols", truths=False)))
    return bind_create(EYE, shape, as_dtype(np.float64 if dtype is None else dtype), env, (), integer(k, "k"))


def tri(n_rows: int, n_cols: int | None, k: int, dtype: DTypeLike | None, env: Environment) -> Expr:
    """Return a matrix with ones on and below its `k`-th diagonal and zeros above, double by default."""
    n = _extent(n_rows, "n_rows")
    shape = parse_shape((n, n if n_cols is None else _extent(n_cols, "n_cols")))
    return bind_create(TRI, shape, as_dtype(np.float64 if dtype is None else dtype), env, (), diagonal(k))


def _extent(value: Any, name: str) -> int:
    """Return how many numbers are in ``numpy.arange(value)``."""
    n = math.ceil(value) if isinstance(value, float) and math.isfinite(value) else integer(value, name)
    return max(n, 0)


# ---------------------------------------------------------------------------------------------- like another array


def empty_like(x: Array, /, *, dtype: DTypeLike | None = None, shape: Any = None) -> Array:
    """Return an array of the shape, dtype and environment of `x`, with arbitrary elements."""
    return _like(EMPTY, x, dtype, shape, None)


def full_like(x: Array, /, fill_value: Any, *, dtype: DTypeLike | None = None, shape: Any = None) -> Array:
    """Return an array of the shape, dtype and environment of `x`, with one value."""
    return _like(FULL, x, dtype, shape, fill_value)


def _like(op: Op, x: Array, dtype: DTypeLike | None, shape: Any, value: Any) -> Array:
    node, box = one_array(f"{op.name}_like", x)
    wanted = node.dtype if dtype is None else as_dtype(dtype)
    size = node.shape if shape is None else parse_shape(shape)
    pin = cut_of(node) if size == node.shape else None
    runtime = None if op is EMPTY else fill_value_of(value, wanted)
    return box(bind_create(op, size, wanted, node.env, (), runtime, pin))


# ------------------------------------------------------------------------------------------------------- grids


def indices(dimensions: Sequence[int], dtype: DTypeLike | None, env: Environment) -> list[Expr]:
    """Return for each axis of a grid the index along it, at every point: broadcast views of one ``arange`` each."""
    shape = parse_shape(dimensions, "dimensions")
    wanted = np.int64 if dtype is None else dtype
    grids = []
    for axis, n in enumerate(shape):
        along = arange(n, None, 1, wanted, env)
        grids.append(bind_get(along, Affine(shape, ((None, 0, 0) if n == 1 else (axis, 0, 1),))))
    return grids
