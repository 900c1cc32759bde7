"""Products of every window of an array with another array: the windows are views, and never lie in memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from distarray.expr.errstates import named
from distarray.expr.lens import windows_of
from distarray.expr.params import WindowProductParams
from distarray.kernels import products
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.namespaces import Block, Namespace, astype
from distarray.kernels.slices import boxes, slice_extents
from distarray.types import HostArray

#: Bytes of the windows that are laid out side by side for a product of matrices: at home in a second-level cache.
PANEL_NBYTES = 1 << 21
#: Elements of a vector that are convolved at a time.
CONVOLVED = 1 << 16


def window_product(xp: Namespace, x: Block, other: Block, *, params: WindowProductParams) -> Block:
    """Return the sum of products of the windows of a block with another one."""
    windows, dtype = windows_of(x, params.window, params.axes), np.dtype(params.dtype)
    made = products.contract(xp, params.labels, params.result, windows, other, dtype=MONOIDS["sum"].state(dtype))
    return astype(xp, made, dtype)


def fill(out: HostArray, x: HostArray, other: HostArray, *, params: WindowProductParams) -> None:
    """Write the sum of products of the windows of a block with another one, some windows at a time."""
    with named(params.known_as):
        if x.ndim == other.ndim == 1 and params.labels[1] == params.labels[0][1:] and out.ndim == 1:
            _convolve(out, x, other)
        else:
            _panel_by_panel(out, x, other, params)


def _convolve(out: HostArray, x: HostArray, row: HostArray) -> None:
    """Write the products of the windows of a vector with one row: numpy's loop, which reads the vector as it lies."""
    turned, more = row[::-1], row.size - 1
    for lo in range(0, out.size, CONVOLVED):
        here = out[lo : lo + CONVOLVED]
        here[...] = np.convolve(x[lo : lo + here.size + more], turned, "valid")


def _panel_by_panel(out: HostArray, x: HostArray, other: HostArray, params: WindowProductParams) -> None:
    windows = windows_of(x, params.window, params.axes)
    (own, others), result = params.labels, params.result
    kept = [label for label in result if label in own[: x.ndim]]
    extents = tuple([windows.shape[own.index(label)] for label in kept])
    per_point = windows.itemsize * max(1, windows.size // max(1, prod(extents)))
    dtype = MONOIDS["sum"].state(out.dtype)
    for box in boxes(extents, slice_extents(extents, max(1, PANEL_NBYTES // per_point)), range(len(extents))):
        at = dict(zip(kept, box, strict=True))
        there, panel, part = [tuple([at.get(k, slice(None)) for k in labels]) for labels in (result, own, others)]
        # windows as columns: their elements are laid out in long rows
        out[there] = products.contract(np, (others, own), result, other[part], windows[panel], dtype=dtype)


def convolve(xp: Namespace, x: Block, y: Block, *, params: Any) -> Block:
    """Return the full convolution of two vectors; an element that is missing beside them is no factor."""
    if hasattr(xp, "convolve"):
        return xp.convolve(x, y)
    made = xp.zeros(x.shape[0] + y.shape[0] - 1, dtype=xp.result_type(x.dtype, y.dtype), device=x.device)
    for k in reversed(range(y.shape[0])):  # in numpy's order
        made[k : k + x.shape[0]] += x * y[k]
    return made


#: As `tables.BLOCK`.
BLOCK: dict[str, Any] = {"window_product": window_product, "convolve": convolve}
#: As `tables.FILL`.
FILL: dict[str, Any] = {"window_product": fill}
