"""Reductions over axes, and where the largest and smallest elements are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, array_of

dx: Any = namespace()

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
    "Det": lambda call, x: dx.linalg.det(array_of(x)),
}
