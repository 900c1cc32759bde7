"""Pools: what a window holds is joined axis by axis, each time as many strided slices as the window is long.

One axis after the other takes the sum of the window's extents as steps, where all at once would take their product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, array_of

dx: Any = namespace()


class PoolAxis(NamedTuple):
    """A PoolAxis is one axis of space under a pool: ``n`` elements, where windows begin, and how many there are.

    Attributes
    ----------
    n, kernel, stride, dilation
        Extent of the axis and of a window, steps between windows and between the elements of one.
    before, after
        Elements that are thought to be around the axis.
    n_windows
        Extent of the result.
    """

    n: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    n_windows: int

    @property
    def starts(self) -> Any:
        """Return the position of the first element of each window; the axis begins at 0."""
        return np.arange(self.n_windows) * self.stride - self.before

    def counts(self, with_pads: bool) -> Any:
        """Return how many elements of each window are on the axis, or on it and the pads."""
        low, high = (-self.before, self.n + self.after) if with_pads else (0, self.n)
        at = self.starts[:, None] + np.arange(self.kernel) * self.dilation
        return ((at >= low) & (at < high)).sum(axis=1)


def _axes(call: NodeCall, x: Value) -> list[PoolAxis]:
    space = x.shape[2:]
    kernel = call["kernel_shape"]
    strides, dilations = (call[name] or [1] * len(space) for name in ("strides", "dilations"))
    pads = call["pads"] or [0] * (2 * len(space))
    axes = []
    for i, (n, k, stride, dilation) in enumerate(zip(space, kernel, strides, dilations)):
        reach = (k - 1) * dilation + 1
        before, after = pads[i], pads[len(space) + i]
        mode = call["auto_pad"] or "NOTSET"
        if mode == "VALID":
            before = after = 0
        if mode.startswith("SAME"):
            n_windows = -(-n // stride)
            total = max((n_windows - 1) * stride + reach - n, 0)
            before = total // 2 if mode == "SAME_UPPER" else -(-total // 2)
            after = total - before
        else:
            room = n + before + after - reach
            n_windows = (-(-room // stride) if call["ceil_mode"] else room // stride) + 1
            # No window begins in the pads behind the axis.
            n_windows -= bool(call["ceil_mode"]) and (n_windows - 1) * stride >= n + before
        axes.append(PoolAxis(n, k, stride, dilation, before, after, n_windows))
    return axes


def _joined(x: Value, axes: list[PoolAxis], join: Callable[[Value, Value], Value], neutral: Any) -> Value:
    for axis, own in enumerate(axes, 2):
        span = (own.n_windows - 1) * own.stride + 1
        last = span + (own.kernel - 1) * own.dilation  # as far as windows read
        width = [(0, 0)] * x.ndim
        width[axis] = (own.before, max(last - own.before - own.n, 0))
        padded = dx.pad(array_of(x), width, constant_values=neutral)
        index = [slice(None)] * x.ndim
        parts = []
        for k in range(own.kernel):
            index[axis] = slice(k * own.dilation, k * own.dilation + span, own.stride)
            parts.append(padded[tuple(index)])
        x = reduce(join, parts)
    return x


def _max_pool(call: NodeCall, x: Value) -> Value:
    if len(call.outputs) > 1 and call.outputs[1]:
        return NotImplemented  # positions: the kernel knows them
    neutral = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _joined(x, _axes(call, x), dx.maximum, neutral)


def _average_pool(call: NodeCall, x: Value) -> Value:
    axes = _axes(call, x)
    counts = reduce(np.multiply.outer, [own.counts(bool(call["count_include_pad"])) for own in axes])
    return _joined(x, axes, dx.add, 0) / counts.astype(x.dtype)


def _lp_pool(call: NodeCall, x: Value) -> Value:
    p = call["p"]
    made = _joined(dx.abs(x) ** p, _axes(call, x), dx.add, 0) ** (1 / p)
    return dx.astype(made, x.dtype, copy=False)


ROWS: dict[str, Row] = {"AveragePool": _average_pool, "LpPool": _lp_pool, "MaxPool": _max_pool}
