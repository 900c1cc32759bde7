"""MaxRoiPool: the largest elements of the bins of regions, for which ``onnx.reference`` has no kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from distarray.io.onnx.operators.call import NodeCall, Row, Value, array_of
from distarray.io.onnx.operators.kernels import deferred


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


ROWS: dict[str, Row] = {"MaxRoiPool": _max_roi_pool}
