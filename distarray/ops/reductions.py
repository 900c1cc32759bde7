"""Reductions over any axes, and the cumulative sums and products.

A reduction is a monoid (which says how partial results combine) and a finish, told by the operation's name: ``mean``
divides a sum by a count, ``var`` and ``std`` end a ``moments``. Params of a node are ``(axes, keepdims)``, and the
correction of ``var`` and ``std``. The monoid runs in the dtype of the result (half floats in single). Dtypes are asked
of numpy: small integers widen in sums, means of integers are f64.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Hashable
from functools import lru_cache, partial

import numpy as np

from distarray.arguments import integer, keeps_axes, normalize_axes, normalize_axis, reduced_axes, refuse_loose_axis
from distarray.dtypes import as_dtype
from distarray.errors import warn_user
from distarray.expr.bind import bind_reduce, bind_reshape, unbox
from distarray.expr.broadcasting import reduced_shape
from distarray.expr.errstates import divide_by_zero, quotient_name
from distarray.expr.expr import GET, Expr
from distarray.expr.op import Op, declare
from distarray.expr.side_by_side import side_by_side
from distarray.ops.creation import constant, full_like, operand_node
from distarray.ops.elementwise import add, as_scalar, divide, equal, imag, multiply, real, sqrt, subtract
from distarray.ops.elementwise import astype as _astype
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.joining import joined
from distarray.ops.manipulation import broadcast_to, expand_dims, permute_dims, ravel, reshape
from distarray.ops.programs import asked
from distarray.ops.sliding import SLIDING, over_windows
from distarray.ops.ufunc_methods import accumulate, in_dtype, reduce
from distarray.types import Axes, AxesLike, DType, DTypeLike

SUM = declare("sum", "reduce", monoid="sum")
PROD = declare("prod", "reduce", monoid="prod")
MAX = declare("max", "reduce", monoid="max")
MIN = declare("min", "reduce", monoid="min")
ANY = declare("any", "reduce", monoid="any")
ALL = declare("all", "reduce", monoid="all")
MEAN = declare("mean", "reduce", monoid="sum")
VAR = declare("var", "reduce", monoid="moments")
STD = declare("std", "reduce", monoid="moments")
ARGMAX = declare("argmax", "reduce", monoid="argmax")
ARGMIN = declare("argmin", "reduce", monoid="argmin")
COUNT_NONZERO = declare("count_nonzero", "reduce", monoid="count")
#: numpy reduces a number by these along the axis that it would have.
_ALONG_NUMBERS = (SUM, PROD, MAX, MIN, ANY, ALL, COUNT_NONZERO, ARGMAX, ARGMIN)
#: Those that have no value of nothing, and what numpy calls the function that they fold.
_NOT_OF_NOTHING = {MAX: "maximum", MIN: "minimum"}
#: Reductions whose result has the dtype that the user says.
_OF_ANY_DTYPE = frozenset("sum prod mean var std cumsum cumprod cumulative_sum cumulative_prod".split())


@lru_cache(maxsize=1024)
def _result_dtype(name: str, dtype: DType) -> DType:
    """Return what numpy's function `name` gives for an array of `dtype`; its TypeError where it gives nothing."""
    return as_dtype(getattr(np, name)(np.ones(1, dtype)).dtype)


def _wanted_dtype(name: str, dtype: DType, wanted: DType) -> DType:
    """Return the dtype of a result that should be `wanted`: dates and time spans stay what they are, or are numpy's
    error.
    """
    if name not in _OF_ANY_DTYPE or (dtype.kind not in "mM" and wanted.kind not in "mM"):
        return wanted
    return as_dtype(getattr(np, name)(np.ones(1, dtype), dtype=wanted).dtype)


def _reduce(op: Op, x: Array, axis: AxesLike, keepdims: bool, dtype: DTypeLike | None, *extra: Hashable) -> Array:
    """Return `op` over `axis`; `dtype` is the result's, in which the monoid runs, or None for numpy's."""
    node, box = one_array(op.name, x)
    axes = reduced_axes(axis, node.ndim, of_numbers=op in _ALONG_NUMBERS)
    # also where the result has no elements: so does numpy
    if op in _NOT_OF_NOTHING and builtins.any(node.shape[a] == 0 for a in axes):
        raise ValueError(
            f"zero-size array to reduction operation {_NOT_OF_NOTHING[op]} which has no identity: shape {node.shape}, "
            f"axes {axes}"
        )
    if keepdims is not False:
        keepdims = keeps_axes(keepdims)
    result = (
        _result_dtype(op.name, node.dtype) if dtype is None else _wanted_dtype(op.name, node.dtype, as_dtype(dtype))
    )
    if dtype is not None and op.name in _OF_ANY_DTYPE:
        node = in_dtype(node, result)
    if node.op is SLIDING or node.op is GET:
        made = _over_windows(op, node, axes, keepdims, result, extra)
        if made is not None:
            return box(made)
    return box(bind_reduce(op, node, axes, result, keepdims=keepdims, params=extra))


def _over_windows(
    op: Op, node: Expr, axes: tuple[int, ...], keepdims: bool, dtype: DType, extra: tuple[Hashable, ...]
) -> Expr | None:
    """Return the reduction without making the windows, where there is a way."""
    less = extra[0] if extra else 0.0
    assert isinstance(less, float)
    found = over_windows(op.name, node, axes, dtype, less)
    if found is None:
        return None
    made, gone = found
    kept = [a for a in range(node.ndim) if a not in gone]
    rest = tuple([i for i, a in enumerate(kept) if a in axes])
    if rest:
        made = bind_reduce(SUM if op is COUNT_NONZERO else op, made, rest, dtype)
    return bind_reshape(made, reduced_shape(node.shape, axes, keepdims))


# -------------------------------------------------------------------------------------------- with an identity


def sum(x: Array, /, axis: AxesLike = None, dtype: DTypeLike | None = None, *, keepdims: bool = False) -> Array:
    """Return the sum over `axis`, all axes by default. Integers smaller than the default integer widen to it."""
    return _reduce(SUM, x, axis, keepdims, dtype)


def prod(x: Array, /, axis: AxesLike = None, dtype: DTypeLike | None = None, *, keepdims: bool = False) -> Array:
    """Return the product over `axis`, all axes by default. Integers smaller than the default integer widen to it."""
    return _reduce(PROD, x, axis, keepdims, dtype)


def any(x: Array, /, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return whether any element along `axis` is true."""
    return _reduce(ANY, x, axis, keepdims, None)


def all(x: Array, /, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return whether all elements along `axis` are true."""
    return _reduce(ALL, x, axis, keepdims, None)


@ready_made(1)
def count_nonzero(x: Array, /, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return the number of elements along `axis` that are not zero."""
    return _reduce(COUNT_NONZERO, x, axis, keepdims, np.intp)


# ----------------------------------------------------------------------------------------- without an identity


def max(x: Array, /, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return the largest element along `axis`, of all axes by default; nan where one is nan."""
    return _reduce(MAX, x, axis, keepdims, None)


def min(x: Array, /, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return the smallest element along `axis`, of all axes by default; nan where one is nan."""
    return _reduce(MIN, x, axis, keepdims, None)


def argmax(x: Array, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the index of the first largest element along `axis`; of the flattened array by default. The first nan
    wins.
    """
    return _arg_reduce(ARGMAX, x, axis, keepdims)


def argmin(x: Array, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the index of the first smallest element along `axis`; of the flattened array by default. The first nan
    wins.
    """
    return _arg_reduce(ARGMIN, x, axis, keepdims)


def _arg_reduce(op: Op, x: Array, axis: int | None, keepdims: bool) -> Array:
    node, _ = one_array(op.name, x)
    refuse_loose_axis(axis)
    # Over all axes the index counts in C order: the monoid's own rule.
    if axis is None or (not node.ndim and axis in (0, -1)):
        axes = tuple(range(node.ndim))
    else:
        axes = (normalize_axis(axis, node.ndim),)
    if builtins.any(node.shape[a] == 0 for a in axes):
        raise ValueError(f"attempt to get {op.name} of an empty sequence: shape {node.shape}, axis {axis}")
    _result_dtype(op.name, node.dtype)
    return _reduce(op, x, axes, bool(keepdims), np.intp)


#: Associative functions of numpy that have a reduction here, in a dtype: those of extremes run in that of the array.
_NAMED: dict[str, Callable[[Array, Axes, DType, bool], Array]] = {
    "add": lambda x, axes, dtype, keep: sum(x, axes, None if dtype.kind == "m" else dtype, keepdims=keep),
    "multiply": lambda x, axes, dtype, keep: prod(x, axes, dtype, keepdims=keep),
    "maximum": lambda x, axes, dtype, keep: max(_astype(x, dtype, copy=False), axes, keepdims=keep),
    "minimum": lambda x, axes, dtype, keep: min(_astype(x, dtype, copy=False), axes, keepdims=keep),
    "logical_and": lambda x, axes, dtype, keep: all(x, axes, keepdims=keep),
    "logical_or": lambda x, axes, dtype, keep: any(x, axes, keepdims=keep),
}


def folded(name: str, x: Array, axes: Axes, dtype: DType, *, keepdims: bool = False) -> Array:
    """Return `x` reduced by numpy's associative function `name` over `axes`, in the dtype of the result."""
    if name in _NAMED:
        return _NAMED[name](x, axes, dtype, keepdims)
    return reduce(name, x, axes, dtype, keepdims=keepdims)


# ----------------------------------------------------------------------------------------------------- moments


def _count(x: Array, axis: AxesLike, name: str) -> int:
    """Return the number of elements that one result is made of."""
    node, _ = one_array(name, x)
    return math.prod(node.shape[a] for a in normalize_axes(axis, node.ndim))


def mean(x: Array, /, axis: AxesLike = None, dtype: DTypeLike | None = None, *, keepdims: bool = False) -> Array:
    """Return the mean over `axis`, all axes by default; that of integers is double."""
    is_of_nothing = _count(x, axis, "mean") == 0
    if is_of_nothing:
        warn_user("Mean of empty slice")
    made = _reduce(MEAN, x, axis, keepdims, dtype)
    if is_of_nothing:
        _divide_nothing(made, quotient_name(made.ndim, made.dtype))
    return made


def _divide_nothing(made: Array, name: str) -> None:
    """Do what numpy does where it divides nothing by nothing for each element of a result."""
    if made.size and made.dtype.kind != "m":
        divide_by_zero(0, name)


def var(
    x: Array, /, axis: AxesLike = None, *, ddof: float = 0.0, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the variance over `axis`: squared distances from the mean over ``count - ddof``."""
    return _moments(VAR, x, axis, ddof, keepdims, dtype)


def std(
    x: Array, /, axis: AxesLike = None, *, ddof: float = 0.0, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the standard deviation over `axis`: the root of `var`."""
    return _moments(STD, x, axis, ddof, keepdims, dtype)


def _moments(op: Op, x: Array, axis: AxesLike, ddof: float, keepdims: bool, dtype: DTypeLike | None) -> Array:
    count = _count(x, axis, op.name)
    if ddof >= count:
        warn_user("Degrees of freedom <= 0 for slice")
    made = _MOMENT[op](x, axis, dtype, int(ddof) if float(ddof).is_integer() else ddof, keepdims=keeps_axes(keepdims))
    if not count:
        _divide_nothing(made, "divide")  # the mean, which numpy keeps as an array
        _divide_nothing(made, quotient_name(made.ndim, made.dtype))
    return made


def _moment(op: Op, x: Array, axis: AxesLike, dtype: DTypeLike | None, ddof: float, *, keepdims: bool) -> Array:
    held = one_array(op.name, x)[0].dtype
    wanted = as_dtype(dtype) if dtype is not None else held
    if held.kind in "mM":
        _result_dtype(op.name, held)  # which numpy refuses, whatever the dtype
    if wanted.kind == "c":
        # var(x) = var(real x) + var(imag x): moments are of real numbers
        x = _astype(x, wanted, copy=False)
        is_divided = ddof < _count(x, axis, op.name)  # else by nothing: once, for nothing by nothing is no number
        parts = [
            _reduce(VAR, part(x), axis, keepdims, None, float(ddof) if is_divided else 0.0) for part in (real, imag)
        ]
        total = add(*parts) if is_divided else divide(add(*parts), 0.0)
        total = total if op is VAR else sqrt(total)
        # numpy: a complex dtype is that of the result too, if asked for
        return total if dtype is None else _astype(total, dtype)
    return _reduce(op, x, axis, keepdims, dtype, float(ddof))


#: What makes each of an array and static arguments.
_MOMENT = {op: ready_made(1)(partial(_moment, op)) for op in (VAR, STD)}


# -------------------------------------------------------------------------------------------------- cumulative


@ready_made(1)
def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Return the sums of the elements up to each one along `axis`, which must be given unless there is one axis only.

    With `include_initial` a 0 comes first.
    """
    return _cumulative("cumulative_sum", x, _only_axis(axis), dtype, include_initial)


@ready_made(1)
def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Return the products of the elements up to each one along `axis`; see `cumulative_sum`. A 1 may come first."""
    return _cumulative("cumulative_prod", x, _only_axis(axis), dtype, include_initial)


def _only_axis(axis: AxesLike) -> int | None:
    """Return the axis that stands alone in a tuple, which numpy's new functions take beside an integer."""
    if type(axis) is not tuple:
        return axis  # type: ignore[return-value]  # checked where it is used
    if len(axis) != 1:
        raise ValueError(f"accumulate does not allow multiple axes: axis={axis}")
    return integer(axis[0], "axis", truths=False)


def cumsum(a: Array, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Return partial sums along `axis`, or of the flattened array."""
    return _cumulative("cumsum", ravel(a) if axis is None else a, axis, dtype, False)


def cumprod(a: Array, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Return partial products along `axis`, or of the flattened array."""
    return _cumulative("cumprod", ravel(a) if axis is None else a, axis, dtype, False)


def _cumulative(name: str, x: Array, axis: int | None, dtype: DTypeLike | None, include_initial: bool) -> Array:
    node, box = one_array(name, x)
    refuse_loose_axis(axis)
    if node.ndim == 0:
        # A number is a row of one, as in numpy; the axis is checked against that.
        return _cumulative(name, expand_dims(x, axis=0), axis, dtype, include_initial)
    if axis is None:
        if node.ndim != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    if dtype is not None and "m" in (node.dtype.kind, as_dtype(dtype).kind):
        # numpy's function takes the dtype that its ufunc refuses: elements stay what they are
        dtype = None if _wanted_dtype(name, node.dtype, as_dtype(dtype)) == node.dtype else dtype
    scan = accumulate("add" if "sum" in name else "multiply", node, axis, dtype)
    if include_initial:
        axis = normalize_axis(axis, node.ndim)
        shape = (*node.shape[:axis], 1, *node.shape[axis + 1 :])
        first = constant(shape, 0 if "sum" in name else 1, scan.dtype, node.env)
        scan = joined([first, scan], axis, scan.dtype, node.env)
    return box(scan)


# ------------------------------------------------------------------------------------------------ compositions


def ptp(a: Array, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return the largest minus the smallest element along `axis`."""
    node, box = one_array("ptp", a)
    return box(subtract(max(node, axis=axis, keepdims=keepdims), min(node, axis=axis, keepdims=keepdims)))


@ready_made(1)
@side_by_side
def average(
    a: Array, axis: AxesLike = None, weights: Array = None, returned: bool = False, *, keepdims: bool = False
) -> Array:
    """Return the mean along `axis`, weighted if `weights` are given; with `returned` also the sum of the weights.

    The sum of the weights is computed at the call. Products and sums are made in the dtype of the result, which is at
    least f64 where `a` has integers.

    Parameters
    ----------
    weights
        Of the shape of `a`; or, with `axis`, of the extents of `a` along these axes, in the order in which they are
        given.

    Raises
    ------
    ZeroDivisionError
        As numpy's: without weights if the result has no elements, with weights if a sum of them is zero.
    """
    if weights is None:
        if axis is not None:  # numpy's function takes more for an axis than its reductions do
            axis = normalize_axes(axis, one_array("average", a)[0].ndim)
        result = mean(a, axis=axis, keepdims=keepdims)
        if 0 in result.shape:
            raise ZeroDivisionError("division by zero: average of an array without elements gives none")
        if not returned:
            return result
        return result, as_scalar(full_like(result, _count(a, axis, "average")))
    operands = unbox("average", (a, weights))
    x, given = [operand_node(n, operands.env) for n in operands.nodes]
    # Boxed, so that what is small is computed at once.
    values, w = operands.box(x), operands.box(given)
    axis = None if axis is None else normalize_axes(axis, x.ndim)
    if w.shape != x.shape:
        if axis is None:
            raise TypeError(
                f"Axis must be specified when shapes of a and weights differ: axis=None, {x.shape} and {w.shape}"
            )
        axes = axis
        if w.shape != tuple(x.shape[i] for i in axes):
            raise ValueError(
                "Shape of weights must be consistent with shape of a along specified axis: "
                f"{w.shape}, {x.shape}, axis={axis}"
            )
        if w.ndim > 1:
            w = permute_dims(w, sorted(range(w.ndim), key=lambda i: axes[i]))
        w = reshape(w, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))
    dtype = np.result_type(x.dtype, w.dtype, np.float64) if x.dtype.kind in "bium" else np.result_type(x.dtype, w.dtype)
    scale = sum(w, axis=axis, dtype=dtype, keepdims=keepdims)
    is_zero, kept = (one_array("average", each)[0] for each in (any(equal(scale, 0)), scale))
    if asked("average", is_zero, kept=(kept,))[0]:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    products = multiply(_astype(values, dtype, copy=False), _astype(w, dtype, copy=False))  # one of i8 would wrap
    total = divide(sum(products, axis=axis, dtype=dtype, keepdims=keepdims), scale)
    if not returned:
        return total
    return total, scale if scale.shape == total.shape else broadcast_to(scale, total.shape)
