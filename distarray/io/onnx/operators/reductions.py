"""Reductions over axes, where the largest and smallest elements are, and what else is computed along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, along, array_of, host, ints

dx: Any = namespace()


def _coerced(function: Callable[[Value, int], Value]) -> Row:
    """Return the row of a function along an axis; before opset 13 all axes from it on are one."""

    def row(call: NodeCall, x: Value) -> Value:
        axis = call["axis"]
        if not x.size:
            return x
        if call.opset >= 13:
            return dx.astype(function(x, axis), x.dtype, copy=False)
        lead = axis + x.ndim if axis < 0 else axis
        flat = dx.reshape(x, (math.prod(x.shape[:lead]), -1))
        return dx.reshape(function(flat, 1), x.shape)

    return row


def _softmax(x: Value, axis: int) -> Value:
    raised = dx.exp(x - dx.max(x, axis=axis, keepdims=True))
    return raised / dx.sum(raised, axis=axis, keepdims=True)


def _log_softmax(x: Value, axis: int) -> Value:
    below = x - dx.max(x, axis=axis, keepdims=True)
    return below - dx.log(dx.sum(dx.exp(below), axis=axis, keepdims=True))


def _hardmax(x: Value, axis: int) -> Value:
    at = dx.arange(x.shape[axis]).reshape(along(axis, x.ndim))
    return dx.where(at == dx.argmax(x, axis=axis, keepdims=True), 1, 0)


def _cumulative(name: str) -> Row:
    def row(call: NodeCall, x: Value, axis: Value) -> Value:
        (at,) = ints(axis)
        x = dx.flip(x, axis=at) if call["reverse"] else x
        made = getattr(dx, name)(x, axis=at, dtype=x.dtype)
        if call["exclusive"]:
            before = (0 if a != at % x.ndim else 1 for a in range(x.ndim))
            neutral = 0 if name == "cumulative_sum" else 1
            padded = dx.pad(made, [(n, 0) for n in before], constant_values=neutral)
            made = padded[tuple(slice(n) for n in x.shape)]
        return dx.flip(made, axis=at) if call["reverse"] else made

    return row


def _top(call: NodeCall, x: Value, k: Value = None) -> Value:
    (n,) = call.option("k", (x, k), 1) or [0]
    return dx.topk(array_of(x), n, axis=call["axis"], largest=call["largest"] != 0)


def _unique(call: NodeCall, x: Value) -> Value:
    if call["axis"] is not None:
        return NotImplemented  # rows are compared as a whole, which no operation of this package does
    values, first, inverse, counts = dx.unique_all(dx.reshape(x, (-1,)))
    inverse = dx.reshape(inverse, (-1,))
    if not call["sorted"]:
        order = dx.argsort(first)  # as they come
        values, first, counts = values[order], first[order], counts[order]
        inverse = dx.argsort(order)[inverse]
    return values, first, inverse, counts


def _one_hot(call: NodeCall, at: Value, depth: Value, values: Value) -> Value:
    n = int(host(depth).reshape(-1)[0])
    at = dx.astype(at, np.int64) if at.dtype.kind in "iu" else at
    axis = call["axis"] % (at.ndim + 1)
    wanted = dx.arange(n).reshape(along(axis, at.ndim + 1))
    is_there = dx.expand_dims(dx.where(at < 0, at + n, at), axis=axis) == wanted
    return dx.where(is_there, values[1], values[0])


Axes = tuple[int, ...] | None


def _reduction(function: Callable[[Value, Axes, bool], Value]) -> Row:
    """Return the row of a reduction: from the array, the axes (None: all) and whether they are kept."""

    def row(call: NodeCall, x: Value, axes: Value = None) -> Value:
        given = call.option("axes", (x, axes), 1)
        # No axes are all of them, or none: then only what comes before and after the sum is done.
        chosen = tuple(given) if given else (() if call["noop_with_empty_axes"] else None)
        return dx.astype(function(x, chosen, bool(call["keepdims"])), x.dtype, copy=False)

    return row


def _sum(x: Value, axes: Axes, keep: bool) -> Value:
    return dx.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _extreme(name: str) -> Callable[[Value, Axes, bool], Value]:
    def function(x: Value, axes: Axes, keep: bool) -> Value:
        if axes == ():
            return x
        if x.dtype.kind == "b":
            return (dx.any if name == "max" else dx.all)(x, axis=axes, keepdims=keep)
        # The largest of nothing is the smallest number that there is.
        initial = {} if 0 not in x.shape else {"initial": _bound(x.dtype, smallest=name == "max")}
        return getattr(dx, name)(x, axis=axes, keepdims=keep, **initial)

    return function


def _bound(dtype: Any, smallest: bool) -> Any:
    if dtype.kind == "f":
        return -math.inf if smallest else math.inf
    limits = np.iinfo(dtype)
    return limits.min if smallest else limits.max


def _log_sum_exp(x: Value, axes: Axes, keep: bool) -> Value:
    if axes == ():
        return x
    if 0 in x.shape:
        return dx.log(dx.sum(dx.exp(x), axis=axes, keepdims=keep))
    most = dx.max(x, axis=axes, keepdims=True)
    finite = dx.where(dx.isfinite(most), most, 0)
    found = dx.log(dx.sum(dx.exp(x - finite), axis=axes, keepdims=True, dtype=finite.dtype)) + finite
    dropped = tuple(range(x.ndim)) if axes is None else axes
    return found if keep or not x.ndim else dx.squeeze(found, axis=dropped)


#: What is reduced, from the array, its axes and whether they are kept.
_REDUCTIONS: dict[str, Callable[[Value, Axes, bool], Value]] = {
    "ReduceSum": _sum,
    "ReduceProd": lambda x, axes, keep: dx.prod(x, axis=axes, keepdims=keep, dtype=x.dtype),
    "ReduceMean": lambda x, axes, keep: x if axes == () else dx.mean(x, axis=axes, keepdims=keep),
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceL1": lambda x, axes, keep: _sum(dx.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: dx.sqrt(_sum(x * x, axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: dx.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
}


def _arg(name: str) -> Row:
    def row(call: NodeCall, x: Value) -> Value:
        axis, keep = call["axis"], bool(call["keepdims"])
        if not call["select_last_index"]:
            return getattr(dx, name)(x, axis=axis, keepdims=keep)
        return x.shape[axis] - 1 - getattr(dx, name)(dx.flip(x, axis=axis), axis=axis, keepdims=keep)

    return row


ROWS: dict[str, Row] = {
    **{operator: _reduction(function) for operator, function in _REDUCTIONS.items()},
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "CumProd": _cumulative("cumulative_prod"),
    "CumSum": _cumulative("cumulative_sum"),
    "Det": lambda call, x: dx.linalg.det(array_of(x)),
    "Hardmax": _coerced(_hardmax),
    "LogSoftmax": _coerced(_log_softmax),
    "OneHot": _one_hot,
    "Softmax": _coerced(_softmax),
    "TopK": _top,
    "Unique": _unique,
}
