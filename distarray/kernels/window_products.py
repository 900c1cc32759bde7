"""Products of every window of an array with another array: the windows are views, and never lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from distarray.expr.affine import namespace
from distarray.expr.errstates import named
from distarray.expr.lens import windows_of
from distarray.expr.params import WindowProductParams
from distarray.kernels import products
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.namespaces import Block, Namespace, Params, astype
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
        if x.ndim == other.ndim == out.ndim == 1 and params.labels[1] == params.labels[0][1:]:
            convolution(out, x, other[::-1], params=("", 0), start=0)
        else:
            _panel_by_panel(out, x, other, params)


def _panel_by_panel(out: HostArray, x: HostArray, other: HostArray, params: WindowProductParams) -> None:
    if not out.size:
        return
    windows = windows_of(x, params.window, params.axes)
    (own, others), result = params.labels, params.result
    kept = [label for label in result if label in own[: x.ndim]]
    extents = tuple([windows.shape[own.index(label)] for label in kept])
    per_point = windows.itemsize * max(1, windows.size // prod(extents))
    dtype = MONOIDS["sum"].state(out.dtype)
    for box in boxes(extents, slice_extents(extents, max(1, PANEL_NBYTES // per_point)), range(len(extents))):
        at = dict(zip(kept, box, strict=True))
        there, panel, part = [tuple([at.get(k, slice(None)) for k in labels]) for labels in (result, own, others)]
        # windows as columns: their elements are laid out in long rows
        out[there] = products.contract(np, (others, own), result, other[part], windows[panel], dtype=dtype)


def convolution(out: Block, x: Block, row: Block, *, params: Params, start: int) -> None:
    """Write a part of the convolution of a vector with a row; what is missing beside the vector is no factor.

    Parameters
    ----------
    out
        What is made for the elements from `start` on.
    x
        The elements of the vector that are needed, of those that there are.
    params
        The rule, and how many elements before one its own result needs.
    """
    _, before = params
    xp, n, m = namespace(x), out.shape[0], row.shape[0]
    first = max(0, start - before)  # the element with which `x` begins
    for lo in range(0, n, CONVOLVED):
        hi = min(lo + CONVOLVED, n)
        wanted = start + lo - before + m - 1  # as `numpy.convolve` counts all that it makes, from the first element
        low = max(0, start + lo - before)
        part = x[low - first : min(start + hi - before + m - 1 - first, x.shape[0])]
        is_inside = wanted == low + m - 1 and part.shape[0] == hi - lo + m - 1
        if is_inside and xp is np:
            out[lo:hi] = np.convolve(part, row, "valid")
        elif xp is np and part.size < m:
            _convolve_ends(out[lo:hi], part, row, wanted - low)
        else:
            out[lo:hi] = _convolved(xp, part, row)[wanted - low : wanted - low + hi - lo]


def _convolve_ends(out: HostArray, x: HostArray, row: HostArray, first: int) -> None:
    """Write elements of the convolution of a vector with a longer row, from the number `first` on: each the product of
    what meets, as NumPy has them at the ends of a longer vector. Its own function would turn the two around, and so
    round otherwise.
    """
    x, turned = x.astype(out.dtype), row[::-1].astype(out.dtype)
    for k in range(out.size):
        lo, hi = max(0, first + k - row.size + 1), min(x.size, first + k + 1)
        shift = row.size - 1 - first - k
        out[k] = np.dot(x[lo:hi], turned[lo + shift : hi + shift])


def _convolved(xp: Namespace, x: Block, row: Block) -> Block:
    """Return all of the convolution of two vectors, each sum in the order of the elements of `x`."""
    if hasattr(xp, "convolve"):
        return xp.convolve(x, row)
    made = xp.zeros(x.shape[0] + row.shape[0] - 1, dtype=xp.result_type(x.dtype, row.dtype), device=x.device)
    for k in reversed(range(row.shape[0])):  # in numpy's order
        made[k : k + x.shape[0]] += x * row[k]
    return made


#: As `tables.BLOCK`.
BLOCK: dict[str, Callable[..., Block]] = {"window_product": window_product}
#: As `tables.FILL`.
FILL: dict[str, Callable[..., None]] = {"window_product": fill}
#: As `tables.PLACED`.
PLACED: dict[str, Callable[..., None]] = {"convolution": convolution}
