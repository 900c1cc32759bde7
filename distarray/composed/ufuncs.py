"""numpy's ufuncs on DistArrays: calls with all their options, ``outer``, and updates ``at`` positions.

`apply` is what ``__array_ufunc__`` does once the types of the operands are known. Which loop of a ufunc runs, and how
operands are cast to it, numpy is asked (``resolve_dtypes``); the elementwise functions are those of `distarray.ops`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from distarray.arguments import CASTINGS, choice, integer, integers, memory_order, naming, shown
from distarray.array import writes
from distarray.array.array import DistArray
from distarray.array.out import check_out, hosted, into
from distarray.composed import ufunc_reductions
from distarray.composed.numpy_arguments import Refused
from distarray.composed.ufunc_reductions import mask_of
from distarray.composed.views import beside, moveaxis
from distarray.dtypes import as_dtype
from distarray.expr.expr import SCALARS
from distarray.ops import contractions, elementwise, special
from distarray.ops.families import loop_dtypes
from distarray.ops.manipulation import expand_dims
from distarray.types import DType

Function = Callable[..., Any]  # of any signature

#: What ``ndarray.clip`` calls, which has no public name: `numpy.clip` is another function.
_CLIP = np._core.umath.clip  # type: ignore[attr-defined]
#: What the methods ``mean``, ``var`` and ``std`` of numpy's arrays run.
_DIVIDING = tuple([getattr(np._core._methods, name).__code__ for name in ("_mean", "_var")])  # type: ignore[attr-defined]


def apply(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], outs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return what a method of a ufunc gives for operands that are ours or the host's.

    Raises
    ------
    TypeError
        `Refused`, if there is no such function here.
    """
    function = function_of(ufunc)
    if method == "__call__":
        return _call(ufunc, function, inputs, outs, options)
    if getattr(np, ufunc.__name__, None) is not ufunc:
        raise Refused(f"the method {method} of a function that is not numpy's")
    if method == "outer":
        return _outer(ufunc, function, inputs, outs, options)
    if method == "at":
        return _at(ufunc, *inputs)
    (out,) = outs or (None,)
    if out is not None and _is_total_of_numpys_mean(inputs[0]):
        raise TypeError(
            "the methods mean, var and std of NumPy's arrays leave a total in an out= that is none of these; call "
            "np.mean(x, out=...), np.var or np.std"
        )
    reduce: Function = getattr(ufunc_reductions, method)
    return reduce(ufunc, *inputs, out=out, **options)


def _is_total_of_numpys_mean(x: Any) -> bool:
    """Return whether a method of numpy's array asks for a total in order to divide it: it divides what it is given, and
    leaves an ``out=`` as it is that is none of its arrays.
    """
    if not isinstance(x, np.ndarray):
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals["__name__"].startswith("distarray."):
        frame = frame.f_back
    return frame is not None and frame.f_code in _DIVIDING


def function_of(ufunc: np.ufunc) -> Function:
    """Return the function here for a ufunc of numpy or SciPy."""
    name = ufunc.__name__
    found: Function | None
    if getattr(np, name, None) is ufunc or ufunc is _CLIP:
        found = getattr(elementwise, name, None) or getattr(contractions, name, None)
    else:
        found = special.function_of(ufunc)
    if found is None:
        raise Refused("neither a ufunc of numpy nor one of scipy.special that distarray has")
    return found


# ------------------------------------------------------------------------------------------------------- calls


def _call(
    ufunc: np.ufunc, function: Function, inputs: tuple[Any, ...], outs: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Do what ``ufunc(*inputs, out=outs, **options)`` does.

    Elements that ``where=`` leaves out keep what `out` has there; without one they have some value, as in numpy, and
    are computed from ones, so that they cause no warning.
    """
    order = memory_order(options.get("order"), ("K", "C", "F", "A"))
    casting = options.get("casting")
    casting = "same_kind" if casting is None else choice(casting, CASTINGS, "casting")
    mask = mask_of(options.get("where", True))
    inputs = _at_home(inputs, (*outs, mask))
    loop = _loop(ufunc, inputs, options, casting)
    if loop is not None:
        inputs = tuple([_cast(v, dtype) for v, dtype in zip(inputs, loop)])
    if ufunc.signature is not None:
        made = _on_cores(ufunc, function, inputs, options)
    else:
        made = function(*(inputs if mask is None else _masked(ufunc, mask, inputs)))
    results = made if isinstance(made, tuple) else (made,)
    outs = outs or (None,) * len(results)
    for out, result in zip(outs, results, strict=True):
        if out is not None:
            check_out(out, result, casting=casting, name=ufunc.__name__, broadcasts=True)
            if ufunc.signature is not None and options.get("axes") is None:
                _check_core(ufunc, out, result, inputs)
    written = []
    for out, result in zip(outs, results, strict=True):
        if out is not None and mask is not None:
            result = elementwise.where(mask, result.astype(out.dtype, copy=False), out)
        if out is None and order != "K":
            is_f = order == "F" or (order == "A" and all(x.flags.f_contiguous for x in inputs if hasattr(x, "flags")))
            result = result._in_order("F" if is_f else "C")
        written.append(into(out, result, casting="unsafe", broadcasts=True))
    return written[0] if len(written) == 1 else tuple(written)


def _at_home(inputs: tuple[Any, ...], others: Sequence[Any]) -> tuple[Any, ...]:
    """Return the operands, the first of which lives where `others` do if none of them lives anywhere."""
    if any(isinstance(v, DistArray) for v in inputs):
        return inputs
    home = next(v for v in others if isinstance(v, DistArray))
    return (beside(home, inputs[0]), *inputs[1:])


def _loop(ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any], casting: Any) -> tuple[DType, ...] | None:
    """Return the dtypes that a call casts its operands to, if that is more than the function does by itself.

    Raises
    ------
    TypeError
        If numpy has no such loop, or does not cast to it.
    """
    dtype, signature = options.get("dtype"), options.get("signature")
    if dtype is not None:
        if signature is not None:
            raise TypeError("cannot specify both 'signature' and 'dtype'")
        signature = (*[None] * ufunc.nin, *[as_dtype(dtype)] * ufunc.nout)
    if signature is None and casting == "same_kind":
        return None
    known = [_weak(v) for v in inputs]
    chosen = {} if signature is None else {"signature": signature}
    with naming(dtype=dtype, signature=options.get("signature"), casting=casting):
        return loop_dtypes(ufunc, inputs, known, casting, **chosen)[: ufunc.nin]


def clip_operands(x: DistArray, low: Any, high: Any, dtype: Any, casting: Any) -> tuple[Any, ...]:
    """Return `x` and its limits as the ufunc takes them that ``np.clip`` is then; None is no limit.

    Raises
    ------
    TypeError
        If numpy has no such loop, or does not cast to it.
    """
    given = [v for v in (low, high) if v is not None]
    ufunc = _CLIP if len(given) == 2 else np.positive if not given else np.minimum if low is None else np.maximum
    loop = _loop(ufunc, (x, *given), {"dtype": dtype}, casting)
    if loop is not None:
        x, *given = [_cast(v, to) for v, to in zip((x, *given), loop)]
    limits = iter(given)
    return x, *[None if v is None else next(limits) for v in (low, high)]


def _weak(value: Any) -> Any:
    """Return what decides the loop of an operand: its dtype, or the type of a Python number, which is weak."""
    kind = type(value)
    if kind in SCALARS:
        return np.dtype(bool) if kind is bool else kind
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def _cast(value: Any, dtype: DType) -> Any:
    if type(value) is int and dtype.kind in "iu":
        return value  # it is of that dtype by itself, or out of its bounds, which the function knows about
    return value.astype(dtype, copy=False) if isinstance(value, DistArray) else np.asarray(value).astype(dtype)


def _masked(ufunc: np.ufunc, mask: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Return the operands with ones where the mask is false: a division by zero there is none that anybody asked
    for.
    """
    number = 0 if ufunc is np.arctanh else 1  # whose value at one is infinite
    if ufunc is np.power and type(inputs[1]) is int and inputs[1] < 0:
        # Of integers it is an error where there is one to be computed: it is of the dtype that it would have.
        dtype = ufunc.resolve_dtypes((*map(_weak, inputs), None))[1]
        inputs = (inputs[0], beside(inputs[0], np.asarray(inputs[1], dtype)))
    home = next(v for v in inputs if isinstance(v, DistArray))
    return [v if type(v) in SCALARS else elementwise.where(mask, beside(home, v), _as_weak(number, v)) for v in inputs]


def _as_weak(number: int, like: Any) -> Any:
    """Return a number that takes the dtype of an array that it meets."""
    kind = (like.dtype if hasattr(like, "dtype") else np.asarray(like).dtype).kind
    return bool(number) if kind == "b" else number if kind not in "mM" else np.array(number).astype(like.dtype)


# ---------------------------------------------------------------------------------------------- core dimensions


def _on_cores(ufunc: np.ufunc, function: Function, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return a function of vectors or matrices (``matmul``, ``vecdot``), with ``axes=``, ``axis=`` and
    ``keepdims=``.
    """
    keeps = options.get("keepdims", False)
    if not isinstance(keeps, bool | np.bool):
        raise TypeError(f"'keepdims' must be a boolean, not keepdims={shown(keeps)}")
    axes, axis = options.get("axes"), options.get("axis")
    if axes is None and axis is None and not keeps:
        return function(*inputs)
    home = next(v for v in inputs if isinstance(v, DistArray))
    arrays = [beside(home, v) for v in inputs]
    counts = _core_counts(ufunc, [x.ndim for x in arrays])
    if keeps and (len(set(counts[:-1])) > 1 or counts[-1]):
        raise TypeError(
            f"{ufunc.__name__} does not support keepdims: its signature {ufunc.signature} has core dimensions in the "
            "output, or inputs with different numbers of them"
        )
    if keeps:
        counts[-1] = counts[0]
    places = _core_axes(ufunc, axes, axis, counts)
    moved = [moveaxis(x, at, range(-len(at), 0)) if at else x for x, at in zip(arrays, places)]
    made = function(*moved)
    last = tuple(range(-counts[-1], 0))
    if keeps:
        made = expand_dims(made, axis=last)
    return moveaxis(made, last, places[-1]) if last else made


def _check_core(ufunc: np.ufunc, out: DistArray, result: DistArray, inputs: Sequence[Any]) -> None:
    """Raise numpy's error where an array for a result has other core dimensions: only the others broadcast."""
    n = _core_counts(ufunc, [np.ndim(v) for v in inputs])[-1]
    if out.shape[out.ndim - n :] != result.shape[result.ndim - n :]:
        raise ValueError(
            f"{ufunc.__name__}: Output operand 0 has a mismatch in its core dimensions: out is of shape {out.shape}, "
            f"the result of {result.shape}"
        )


def _core_counts(ufunc: np.ufunc, ndims: Sequence[int]) -> list[int]:
    """Return core dimensions of each operand and of the result; those marked ``?`` are left out of operands that lack
    them.
    """
    operands, result = str(ufunc.signature).split("->")
    terms = [t.strip("()").split(",") for t in (*operands.replace("),(", ")|(").split("|"), result)]
    missing: set[str] = set()
    for names, ndim in zip(terms, ndims):
        if ndim < len(names):
            missing |= {n for n in names if n.endswith("?")}
    return [len([n for n in names if n and n not in missing]) for names in terms]


def _core_axes(ufunc: np.ufunc, axes: Any, axis: Any, counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the axes of the core dimensions of each operand and of the result."""
    name = ufunc.__name__
    if axis is not None:
        if axes is not None:
            raise TypeError("cannot specify both 'axis' and 'axes'")
        if ufunc is not np.vecdot:
            raise TypeError(
                f"{name}: axis can only be used with a single shared core dimension, not with those of the signature "
                f"{ufunc.signature}"
            )
        return [(integer(axis, "axis", truths=False),) * n for n in counts]
    if axes is None:
        return [tuple(range(-n, 0)) for n in counts]
    if not isinstance(axes, list):
        raise TypeError("axes should be a list.")
    given = [*axes, ()] if len(axes) == ufunc.nin and not counts[-1] else axes
    if len(axes) == ufunc.nin and len(set(counts)) == 1:
        given = [*axes, -1]
    if len(given) != len(counts):
        raise ValueError(
            f"axes should be a list with an entry for all {len(counts)} inputs and outputs; entries for outputs can "
            "only be omitted if none of them has core axes."
        )
    places: list[tuple[int, ...]] = []
    for i, (entry, n) in enumerate(zip(given, counts)):
        is_one = hasattr(entry, "__index__") and not isinstance(entry, bool)
        if n != 1 and not is_one and not isinstance(entry, tuple):
            raise TypeError(f"{name}: axes item {i} should be a tuple.")
        at = entry if isinstance(entry, tuple) else (entry,)
        if len(at) != n:
            raise np.exceptions.AxisError(
                f"{name}: operand {i} has {n} core dimensions, but {len(at)} dimensions are specified by axes tuple."
            )
        places.append(integers(at, "axes", truths=False))
    return places


# ---------------------------------------------------------------------------------------------------- outer, at


def _outer(
    ufunc: np.ufunc, function: Function, inputs: tuple[Any, ...], outs: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Return ``ufunc.outer(x, y)``: every element of `x` with every one of `y`."""
    if ufunc.signature is not None:
        raise TypeError("method outer is not allowed in ufunc with non-trivial signature")
    if ufunc.nin != 2:
        raise ValueError("outer product only supported for binary functions")
    # As in numpy, Python's numbers are arrays here, and not weak.
    x, y = (v if isinstance(v, DistArray) else np.asarray(v) for v in inputs)
    return _call(ufunc, function, (x.reshape(tuple(x.shape) + (1,) * y.ndim), y), outs, options)


def _at(ufunc: np.ufunc, x: Any, index: Any, *value: Any) -> None:
    """Compute ``ufunc.at(x, index, value)`` in place: each repetition of an index counts."""
    name = ufunc.__name__
    if ufunc.signature is not None:
        raise TypeError(
            f"{name}.at does not support ufunc with non-trivial signature: {name} has signature {ufunc.signature}."
        )
    if ufunc.nout != 1:
        raise ValueError("Only single output ufuncs supported at this time")
    if len(value) != ufunc.nin - 1:
        raise ValueError("second operand provided when ufunc is unary" if value else "second operand needed for ufunc")
    if isinstance(x, np.ndarray):
        dtypes = [v.dtype if hasattr(v, "dtype") else np.asarray(v).dtype for v in value]
        ufunc.at(
            np.zeros(0, x.dtype), np.zeros(0, int), *[np.zeros(0, d) for d in dtypes]
        )  # errors, before it computes
        ufunc.at(x, hosted(index), *hosted(value))
        return
    if not isinstance(x, DistArray):
        raise TypeError("first operand must be array")
    writes.update_at(x, name, index, *value)
