"""Operators that move elements: shapes, slices, pads, positions; and Resize, which also weighs them.

Along each axis by itself, Resize takes elements (``nearest``) or weighs them (``linear``, ``cubic``). The weights are
those of ONNX's specification. They depend on extents and scales alone, which are known, so that an axis is one product
with a matrix of as many columns as it has elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.movement_rules import block_steps, reshaped_sizes, slice_of, split_sizes
from distarray.io.onnx.operators.call import NodeCall, Row, Value, along, array_of, host, ints, is_host
from distarray.io.onnx.operators.kernels import run_kernel
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
    if dtype.kind in "iu" and made.dtype.kind == "f":  # rounded, and what is beyond all integers is the last one
        limits = np.iinfo(dtype)
        made = dx.clip(dx.rint(made), limits.min, limits.max)
    return dx.astype(made, dtype, copy=False)


def _along(call: NodeCall, x: Value, axis: int, at: HostArray, scale: float) -> Value:
    n = x.shape[axis]
    if call["mode"] == "nearest":
        chosen = np.clip(_NEAREST[call["nearest_mode"]](at), 0, n - 1).astype(np.int64)
        return dx.take(x, chosen, axis=axis)
    precise = np.result_type(x.dtype, np.float32) if x.dtype.kind == "f" else np.float64
    weights = dx.asarray(_matrix(call, at, n, scale).astype(precise))
    return dx.moveaxis(dx.tensordot(x, weights, axes=((axis,), (1,))), -1, axis)


# ------------------------------------------------------------------------------------------------------- shapes


def _reshape(call: NodeCall, x: Value, shape: Value = None) -> Value:
    wanted = call.option("shape", (x, shape), 1) or []
    sizes = reshaped_sizes(x.shape, wanted, allow_zero=bool(call["allowzero"]))
    if None in sizes:
        raise ValueError(f"{call}: shape={wanted} does not say what -1 is, for an array of shape {x.shape}")
    return dx.reshape(x, tuple(sizes))


def _flatten(call: NodeCall, x: Value) -> Value:
    lead = call["axis"] + (x.ndim if call["axis"] < 0 else 0)
    return dx.reshape(x, (math.prod(x.shape[:lead]), math.prod(x.shape[lead:])))


def _squeeze(call: NodeCall, x: Value, axes: Value = None) -> Value:
    given = call.option("axes", (x, axes), 1)
    return dx.squeeze(x, axis=tuple(a for a, n in enumerate(x.shape) if n == 1) if given is None else tuple(given))


def _unsqueeze(call: NodeCall, x: Value, axes: Value = None) -> Value:
    given = call.option("axes", (x, axes), 1) or []
    ndim = x.ndim + len(given)
    new = [a % ndim for a in given if -ndim <= a < ndim]
    if len({*new}) != len(given):
        raise ValueError(f"{call}: axes={given} are no {len(given)} different axes of {ndim}")
    old = iter(x.shape)
    return dx.reshape(x, tuple(1 if a in new else next(old) for a in range(ndim)))


def _tile(call: NodeCall, x: Value, repeats: Value, axis: Value = None) -> Value:
    if axis is None:
        return dx.tile(array_of(x), ints(repeats))
    times = [1] * x.ndim  # opset 1: one axis, and how often
    times[ints(axis)[0]] = ints(repeats)[0]
    return dx.tile(array_of(x), times)


def _split(call: NodeCall, x: Value, sizes: Value = None) -> Value:
    axis = call["axis"]
    given = call.option("split", (x, sizes), 1)
    if given is None:
        given = split_sizes(x.shape[axis], call["num_outputs"] or len(call.outputs))
    return tuple(split_along(call, x, given))


def split_along(call: NodeCall, x: Value, sizes: list[int]) -> list[Value]:
    """Return parts of these sizes along the axis of a node."""
    axis, x = call["axis"], array_of(x)
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise ValueError(f"{call}: split={sizes} are no parts of axis {axis}, which has {x.shape[axis]} elements")
    # All but the last have an end; where there are none, there is nothing to split.
    return list(dx.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis)) if sizes else []


def _slice(call: NodeCall, x: Value, *given: Value) -> Value:
    read = [call.option(name, (x, *given), i) for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)]
    starts, ends = (v or [] for v in read[:2])
    axes = list(range(len(starts))) if read[2] is None else read[2]
    steps = [1] * len(starts) if read[3] is None else read[3]
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        index[axis] = slice_of(x.shape[axis], start, end, step)
    return x[tuple(index)]


def _pad(call: NodeCall, x: Value, pads: Value = None, value: Value = None, axes: Value = None) -> Value:
    widths = call.option("pads", (x, pads), 1) or call["paddings"] or []  # of opset 1
    chosen = range(x.ndim) if axes is None else [a % x.ndim for a in ints(axes)]
    if len(widths) != 2 * len(chosen):
        raise ValueError(f"{call}: {len(widths)} pads for {len(chosen)} axes; two for each are needed")
    both = dict(zip(chosen, zip(widths, widths[len(chosen) :])))
    # What is negative is cut off first.
    cuts = [[max(-n, 0) for n in both.get(a, (0, 0))] for a in range(x.ndim)]
    if any(sum(cut) > n for cut, n in zip(cuts, x.shape)):
        raise ValueError(f"{call}: pads={widths} cut off more than there is of an array of shape {x.shape}")
    index = tuple(slice(first, n - last) for (first, last), n in zip(cuts, x.shape))
    pairs = [tuple(max(n, 0) for n in both.get(a, (0, 0))) for a in range(x.ndim)]
    mode = call["mode"]
    x = array_of(x[index])
    if mode != "constant":
        return dx.pad(x, pairs, mode=mode)
    fill = call["value"] if value is None else value
    # A number that is known is a number of the operation; another one is written around what is padded by zeros.
    if fill is None or not hasattr(fill, "dtype") or is_host(fill):
        return dx.pad(x, pairs, constant_values=0 if fill is None else np.asarray(fill).reshape(-1)[0].item())
    inside = dx.pad(dx.ones_like(x, dtype=bool), pairs)
    return dx.where(inside, dx.pad(x, pairs), dx.reshape(fill, ()))


def _blocks(call: NodeCall, x: Value) -> Value:
    first, perm, last = block_steps(call.op_type, call["mode"], x.shape, call["blocksize"])
    return dx.reshape(dx.permute_dims(dx.reshape(x, tuple(first)), perm), tuple(last))


# ----------------------------------------------------------------------------------------------------- positions


def _beside(n: int, axis: int, ndim: int) -> Any:
    """Return the indices of an axis of `n` elements, as they broadcast beside others of `ndim` axes."""
    return np.arange(n).reshape(along(axis, ndim))


def _gather_elements(call: NodeCall, x: Value, at: Value) -> Value:
    axis = call["axis"] % x.ndim
    # Along the other axes there may be fewer positions than elements.
    seen = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(at.shape))]
    return dx.take_along_axis(seen, at, axis=axis)


def _gather_nd(call: NodeCall, x: Value, at: Value) -> Value:
    batch = call["batch_dims"] or 0
    ndim = at.ndim - 1
    rows = tuple(_beside(at.shape[b], b, ndim) for b in range(batch))
    if not at.shape[-1]:
        raise ValueError(f"{call}: indices of shape {at.shape} name no axis")
    return array_of(x)[(*rows, *(at[..., j] for j in range(at.shape[-1])))]


#: What ``reduction`` does with what is there, by the name of an update (`distarray.array.writes.Updates`).
_UPDATES = {None: "set", "none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


def _written(call: NodeCall, x: Value, index: Sequence[Any], values: Value) -> Value:
    update = _UPDATES[call["reduction"]]
    if x.dtype.kind == "b" and update != "set":
        update = {"add": "max", "multiply": "min"}.get(update, update)  # or and and
    return getattr(array_of(x).at[tuple(index)], update)(values)


def _scatter_elements(call: NodeCall, x: Value, at: Value, values: Value) -> Value:
    axis = call["axis"] % x.ndim
    return _written(call, x, [at if a == axis else _beside(n, a, x.ndim) for a, n in enumerate(at.shape)], values)


def _scatter_nd(call: NodeCall, x: Value, at: Value, values: Value) -> Value:
    index = [at[..., j] for j in range(at.shape[-1])]
    return _written(call, x, index or [...], values)


def _scatter_tensor(call: NodeCall, cache: Value, update: Value, first: Value = None) -> Value:
    """Write `update` into each row of a cache along an axis, from a position of the row's own on."""
    axis = call["axis"] % cache.ndim
    n, length = cache.shape[axis], update.shape[axis]
    at = _beside(length, 1, 2)
    if first is not None:
        at = dx.reshape(first, (-1, 1)) + at
    if call["mode"] == "circular":
        at = at % n
    moved = array_of(dx.moveaxis(cache, axis, 1))
    rows = _beside(cache.shape[0], 0, 2)
    return dx.moveaxis(moved.at[rows, at].set(dx.moveaxis(update, axis, 1)), 1, axis)


def _reverse_sequence(call: NodeCall, x: Value, lengths: Value) -> Value:
    time, batch = call["time_axis"] % x.ndim, call["batch_axis"] % x.ndim
    steps = dx.asarray(_beside(x.shape[time], time, x.ndim))
    own = dx.reshape(lengths, along(batch, x.ndim))
    return dx.take_along_axis(x, dx.where(steps < own, own - 1 - steps, steps), axis=time)


def _compress(call: NodeCall, x: Value, condition: Value) -> Value:
    axis = call["axis"]
    x = array_of(x)
    n = x.size if axis is None else x.shape[axis]
    return dx.compress(array_of(condition)[:n], x, axis=axis)


def _suppressed(
    call: NodeCall, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, *least: Value
) -> Value:
    """Return what NonMaxSuppression chooses, by its kernel, which does not know what is meant by inputs left out."""
    most = np.zeros(1, np.int64) if most is None else most
    overlap = np.zeros(1, np.float32) if overlap is None else overlap
    return run_kernel(call, [boxes, scores, most, overlap, *least])


def _nonzero(call: NodeCall, x: Value) -> Value:
    x = array_of(x)
    if not x.ndim:
        return dx.zeros((0, int(host(x) != 0)), dtype=np.int64)
    return dx.astype(dx.stack(dx.nonzero(x)), np.int64, copy=False)


# -------------------------------------------------------------------------------------------------------- resize


def _upsample(call: NodeCall, x: Value, scales: Value = None) -> Value:
    if call["mode"] not in (None, "nearest"):
        return NotImplemented
    factors = call["scales"] if scales is None else host(scales).tolist()
    if call["height_scale"] is not None:  # of opset 1
        factors = [1.0, 1.0, call["height_scale"], call["width_scale"]]
    for axis, factor in enumerate(factors):
        n = math.floor(x.shape[axis] * factor)
        if n != x.shape[axis]:
            at = np.minimum(np.floor(np.arange(n) / factor), x.shape[axis] - 1).astype(np.int64)
            x = dx.take(x, at, axis=axis)
    return x


ROWS: dict[str, Row] = {
    # The function that its schema is drops the axis of the batch where that has one element.
    "AffineGrid": lambda call, *inputs: run_kernel(call, inputs),
    "Compress": _compress,
    "Concat": lambda call, *inputs: dx.concat(inputs, axis=call["axis"]),
    "DepthToSpace": _blocks,
    "Expand": lambda call, x, shape: dx.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(shape)))),
    "Flatten": _flatten,
    "Gather": lambda call, x, at: dx.take(x, at, axis=call["axis"]),
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonMaxSuppression": _suppressed,
    "NonZero": _nonzero,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "Squeeze": _squeeze,
    "TensorScatter": _scatter_tensor,
    "Tile": _tile,
    "Transpose": lambda call, x: dx.permute_dims(
        x, tuple(reversed(range(x.ndim)) if call["perm"] is None else call["perm"])
    ),
    "Trilu": lambda call, x, k=None: (dx.triu if call["upper"] else dx.tril)(x, k=0 if k is None else ints(k)[0]),
    "Unsqueeze": _unsqueeze,
    "Upsample": _upsample,
}
