"""Resize: along each axis by itself, elements are taken (``nearest``) or weighed (``linear``, ``cubic``).

The weights are those of ONNX's specification. They depend on extents and scales alone, which are known, so that an axis
is one product with a matrix of as many columns as it has elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, along, array_of, host, ints
from distarray.types import HostArray

dx: Any = namespace()

#: Where an element of the result lies among those of the axis: from its index, both extents, the scale, the length of
#: the result before it was rounded, and the region of interest.
_COORDINATES: dict[str, Callable[..., Any]] = {
    "half_pixel": lambda i, n, m, scale, length, roi: (i + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda i, n, m, scale, length, roi: (
        n / 2 * (1 - m / length) + (i + 0.5) / scale - 0.5
    ),
    "pytorch_half_pixel": lambda i, n, m, scale, length, roi: (i + 0.5) / scale - 0.5 if m > 1 else i * 0.0,
    "align_corners": lambda i, n, m, scale, length, roi: i * ((n - 1) / (length - 1)) if length != 1 else i * 0.0,
    "asymmetric": lambda i, n, m, scale, length, roi: i / scale,
    "tf_crop_and_resize": lambda i, n, m, scale, length, roi: (
        roi[0] * (n - 1) + i * ((roi[1] - roi[0]) * (n - 1) / (length - 1))
        if length > 1
        else i * 0.0 + 0.5 * (roi[0] + roi[1]) * (n - 1)
    ),
}  # fmt: skip

_NEAREST: dict[str, Callable[[HostArray], HostArray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(distance: HostArray, a: float) -> HostArray:
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


def _cubic(distance: HostArray, a: float) -> HostArray:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


#: The weight of an element by its distance, and how far it reaches.
_WEIGHTS: dict[str, tuple[Callable[[HostArray, float], HostArray], int]] = {
    "linear": (_linear, 1),
    "cubic": (_cubic, 2),
}


def _matrix(call: NodeCall, at: HostArray, n: int, scale: float) -> HostArray:
    """Return the weights that `n` elements have in those at the positions `at`, one row each."""
    weigh, reach = _WEIGHTS[call["mode"]]
    # Where the axis shrinks, an antialiasing filter is as much wider.
    width = min(scale, 1.0) if call["antialias"] else 1.0
    far = math.ceil(reach / width)
    first = np.floor(at).astype(np.int64)
    reached = first[:, None] + np.arange(-far, far + 1)[None, :]
    weights = weigh((reached - at[:, None]) * width, call["cubic_coeff_a"])
    outside = (reached < 0) | (reached >= n)
    if call["exclude_outside"]:
        weights = np.where(outside, 0, weights)
    total = weights.sum(axis=1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    matrix = np.zeros((len(at), n))
    # Before and behind the axis are its first and last elements.
    np.add.at(matrix, (np.arange(len(at))[:, None], np.clip(reached, 0, n - 1)), weights)
    return matrix


def _extents(call: NodeCall, x: Value, axes: list[int], scales: Value, sizes: Value) -> list[tuple[float, float, int]]:
    """Return for each of the axes the scale, the length that it says, and the extent of the result."""
    shape = [x.shape[a] for a in axes]
    if scales is not None and scales.size:
        factors = [float(s) for s in host(scales).reshape(-1)]
        return [(s, n * s, math.floor(n * s)) for s, n in zip(factors, shape)]
    wanted = ints(sizes)
    policy = call["keep_aspect_ratio_policy"] or "stretch"
    if policy == "stretch":
        return [(m / n if n else 1.0, float(m), m) for m, n in zip(wanted, shape)]
    scale = (min if policy == "not_larger" else max)(m / n for m, n in zip(wanted, shape))
    lengths = [math.floor(scale * n + 0.5) for n in shape]
    return [(scale, scale * n, m) for n, m in zip(shape, lengths)]


def _resize(call: NodeCall, x: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Value:
    if call.opset < 11:
        return NotImplemented  # scales alone, of which the kernel knows what they meant
    axes = [a % x.ndim for a in call["axes"]] if call["axes"] else list(range(x.ndim))
    mode = call["coordinate_transformation_mode"]
    region = [0.0] * len(axes) + [1.0] * len(axes)
    if mode == "tf_crop_and_resize":
        region = [float(r) for r in host(roi).reshape(-1)]
    dtype, made = x.dtype, array_of(x)
    for k, (axis, (scale, length, m)) in enumerate(zip(axes, _extents(call, x, axes, scales, sizes))):
        n = x.shape[axis]
        if scale == 1 and m == n and mode != "tf_crop_and_resize":
            continue
        at = _COORDINATES[mode](np.arange(m, dtype=float), n, m, scale, length, (region[k], region[len(axes) + k]))
        made = _along(call, made, axis, at, scale)
        if mode == "tf_crop_and_resize":
            inside = (at >= 0) & (at <= n - 1)
            beside = inside.reshape(along(axis, x.ndim))
            made = dx.where(beside, made, call["extrapolation_value"])
    return dx.astype(made, dtype, copy=False)


def _along(call: NodeCall, x: Value, axis: int, at: HostArray, scale: float) -> Value:
    n = x.shape[axis]
    if call["mode"] == "nearest":
        chosen = np.clip(_NEAREST[call["nearest_mode"]](at), 0, n - 1).astype(np.int64)
        return dx.take(x, chosen, axis=axis)
    weights = dx.asarray(_matrix(call, at, n, scale).astype(np.result_type(x.dtype, np.float32)))
    return dx.moveaxis(dx.tensordot(x, weights, axes=((axis,), (1,))), -1, axis)


ROWS: dict[str, Row] = {"Resize": _resize}
