"""Pools, over windows, regions or all of space, and normalisation by means, norms and scales of channels.

What a window holds is joined axis by axis, each time as many strided slices as the window is long. One axis after the
other takes the sum of the window's extents as steps, where all at once would take their product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, array_of
from distarray.io.onnx.operators.kernels import deferred

dx: Any = namespace()


def _pooled(images: Any, regions: Any, pooled: tuple[int, int], scale: float) -> Any:
    """Return the largest element of each bin, 0 for an empty one; both borders of a region are part of it."""
    space = images.shape[2:]
    made = np.zeros((len(regions), images.shape[1], *pooled), images.dtype)
    for i, (batch, left, top, right, bottom) in enumerate(regions.astype(float)):
        corners = [[int(np.floor(v * scale + 0.5)) for v in pair] for pair in ((top, bottom), (left, right))]
        sizes = [max(last - first + 1, 1) / n for (first, last), n in zip(corners, pooled)]
        for bins in np.ndindex(*pooled):
            box = tuple(
                slice(*np.clip([first + int(np.floor(k * size)), first + int(np.ceil((k + 1) * size))], 0, n))
                for (first, _), k, size, n in zip(corners, bins, sizes, space)
            )
            seen = images[(int(batch), slice(None), *box)]
            if seen.size:
                made[(i, slice(None), *bins)] = seen.max((1, 2))
    return made


def _max_roi_pool(call: NodeCall, x: Value, regions: Value) -> Value:
    pooled = tuple(call["pooled_shape"])
    function = partial(_pooled, pooled=pooled, scale=call["spatial_scale"])
    types = [((regions.shape[0], x.shape[1], *pooled), x.dtype)]
    return deferred(call.op_type, function, {0: array_of(x), 1: array_of(regions)}, types)[0]


def _per_channel(x: Value, v: Value) -> Value:
    """Return parameters as they broadcast to `x`: one for each channel, before opset 9 also for each element."""
    return dx.reshape(v, (-1, *(1,) * (x.ndim - 2))) if v.ndim == 1 else v


def _scaled(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    """Return ``(x - mean) / sqrt(var + epsilon) * scale + bias``, where each broadcasts to `x`, in its dtype."""
    made = (x - mean) / dx.sqrt(var + call["epsilon"]) * scale + bias
    return dx.astype(made, x.dtype, copy=False)


def _batch_normalization(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    scale, bias = _per_channel(x, scale), _per_channel(x, bias)
    if not call["training_mode"]:
        return _scaled(call, x, scale, bias, _per_channel(x, mean), _per_channel(x, var))
    others = tuple(a for a in range(x.ndim) if a != 1)
    own_mean, own_var = dx.mean(x, axis=others), dx.var(x, axis=others)
    old = call["momentum"]
    made = _scaled(call, x, scale, bias, _per_channel(x, own_mean), _per_channel(x, own_var))
    moved = [(o * old + n * (1 - old)) for o, n in ((mean, own_mean), (var, own_var))]
    return made, *(dx.astype(m, mean.dtype, copy=False) for m in moved)


def _instance_normalization(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    axes = tuple(range(2, x.ndim))
    mean, var = dx.mean(x, axis=axes, keepdims=True), dx.var(x, axis=axes, keepdims=True)
    return _scaled(call, x, _per_channel(x, scale), _per_channel(x, bias), mean, var)


def _norm(x: Value, p: int, axes: Any) -> Value:
    if p == 1:
        return dx.sum(dx.abs(x), axis=axes, keepdims=True)
    if p == 2:
        return dx.sqrt(dx.sum(x * x, axis=axes, keepdims=True))
    return dx.sum(dx.abs(x) ** p, axis=axes, keepdims=True) ** (1 / p)


def _lp_normalization(call: NodeCall, x: Value) -> Value:
    norm = _norm(x, call["p"], call["axis"])
    return dx.where(norm == 0, 0, x / dx.where(norm == 0, 1, norm))


def _local_response(call: NodeCall, x: Value) -> Value:
    size, channels = call["size"], x.shape[1]
    before = (size - 1) // 2
    padded = dx.pad(x * x, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    near = sum((padded[:, i : i + channels] for i in range(1, size)), padded[:, :channels])
    return dx.astype(x / (call["bias"] + call["alpha"] / size * near) ** call["beta"], x.dtype, copy=False)


def _over_space(function: Callable[[NodeCall, Value, tuple[int, ...]], Value]) -> Row:
    return lambda call, x: function(call, x, tuple(range(2, x.ndim)))


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
            if n_windows < 1:
                there = f"{n + before + after} along axis {i + 2} and its pads"
                raise ValueError(f"{call}: a window reaches over {reach} elements, of {there}")
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


ROWS: dict[str, Row] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": _over_space(lambda call, x, axes: dx.mean(x, axis=axes, keepdims=True)),
    "GlobalLpPool": _over_space(lambda call, x, axes: _norm(x, call["p"], axes)),
    "GlobalMaxPool": _over_space(lambda call, x, axes: dx.max(x, axis=axes, keepdims=True)),
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response,
    "LpNormalization": _lp_normalization,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxRoiPool": _max_roi_pool,
}
