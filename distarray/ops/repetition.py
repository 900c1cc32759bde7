"""Elements more than once: repeat and tile, and pad, which repeats those of the border."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.arguments import choice, host_array, integers, normalize_axes, normalize_axis, parse_shape, shown
from distarray.errors import NotSupportedError
from distarray.expr.affine import Affine
from distarray.expr.bind import bind_create, bind_get, bind_reshape
from distarray.expr.expr import Expr
from distarray.expr.side_by_side import side_by_side
from distarray.ops.creation import EMPTY, constant
from distarray.ops.families import Array, one_array
from distarray.ops.joining import joined
from distarray.ops.lenses import slice_lens
from distarray.types import HostArray, Shape

__all__ = ["pad", "repeat", "tile"]


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Return each element `repeats` times along `axis`, of the flattened array by default.

    An array of repeats, one for each element, is read at the call: the shape of the result depends on it.
    """
    node, box = one_array("repeat", x)
    if axis is None:
        node = bind_reshape(node, (node.size,))
        axis = 0
    elif node.ndim == 0:
        node = bind_reshape(node, (1,))
        axis = normalize_axis(axis, 1)
    axis = normalize_axis(axis, node.ndim)
    n = node.shape[axis]
    many = host_array(repeats, "repeats", kinds="biu")
    if many.ndim > 1:
        raise ValueError(f"repeats={shown(repeats)}: object too deep for desired array")
    if many.shape not in ((), (1,)) and len(many) != n:
        raise ValueError(
            f"operands could not be broadcast together with shape ({n},) ({len(many)},) along axis={axis}: "
            f"repeats={shown(repeats)}"
        )
    if n and (many < 0).any():
        raise ValueError(f"repeats may not contain negative values: repeats={shown(repeats)}")
    if many.size != 1:
        from distarray.ops.indexing import take

        return box(take(node, np.repeat(np.arange(n), many), axis=axis))
    counts = max(int(many.reshape(())), 0)
    # repeat(x, r) = reshape(broadcast(x[..., :, None], r))
    lens = Affine.identity(node.shape).expanded(axis + 1)
    lens = lens.broadcast((*node.shape[: axis + 1], counts, *node.shape[axis + 1 :]))
    return box(bind_reshape(bind_get(node, lens), (*node.shape[:axis], n * counts, *node.shape[axis + 1 :])))


def tile(x: Array, repetitions: int | Sequence[int], /) -> Array:
    """Return `x` beside itself: so many times along each axis."""
    node, box = one_array("tile", x)
    times = integers(repetitions, "repetitions")
    ndim = max(node.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    if any(t < 0 for t in times):
        raise ValueError(f"negative dimensions are not allowed: repetitions={times}")
    return box(_tiled(bind_reshape(node, (1,) * (ndim - node.ndim) + node.shape), times))


#: Axes that an array of numpy may have.
_MAX_NDIM = 64


def _tiled(node: Expr, times: Shape) -> Expr:
    shape = node.shape
    result = parse_shape(tuple([t * n for t, n in zip(times, shape)]), "the shape of the tiled array")
    if 0 in result:
        return bind_create(EMPTY, result, node.dtype, node.env)
    if node.ndim + sum(t > 1 and n > 1 for t, n in zip(times, shape)) > _MAX_NDIM:
        # An axis that is not repeated is one with the axis before it, the elements of which come along. Where no two
        # axes are one, each is repeated: so many axes of more than one element have more elements than an array may.
        blocks: list[tuple[int, int]] = []
        for t, n in zip(times, shape):
            if blocks and (t == 1 or blocks[-1][1] == 1 == n):
                blocks[-1] = (blocks[-1][0] * t, blocks[-1][1] * n)
            else:
                blocks.append((t, n))
        joined = bind_reshape(node, tuple([n for _, n in blocks]))
        return bind_reshape(_tiled(joined, tuple([t for t, _ in blocks])), result)
    # tile(x, t) = reshape(broadcast(x[None, :, None, :], t0, n0, t1, n1)), new axes only where both are more than one
    places: list[int] = []
    spread: list[int] = []
    for t, n in zip(times, shape):
        places.append(len(spread) + (t != 1 != n))
        spread += [t, n] if t != 1 != n else [t * n]
    terms = tuple([(place, 0, 1) if n != 1 else (None, 0, 0) for place, n in zip(places, shape)])
    return bind_reshape(bind_get(node, Affine(tuple(spread), terms)), result)


_OTHER_PAD_MODES = ("linear_ramp", "maximum", "mean", "median", "minimum")
_PAD_MODES = ("constant", "edge", "wrap", "reflect", "symmetric", "empty")


@side_by_side
def pad(array: Array, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Array:
    """Return `array` with more elements before and after it along each axis.

    Parameters
    ----------
    pad_width
        ``(before, after)`` for each axis, or one pair or number for all, or a mapping from axes to them.
    mode
        ``constant``, ``edge``, ``wrap``, ``reflect``, ``symmetric`` or ``empty``.
    constant_values
        As `pad_width`, for ``constant``.
    """
    node, box = one_array("pad", array)
    if callable(mode) or (isinstance(mode, str) and mode in _OTHER_PAD_MODES):
        raise NotSupportedError(
            f"pad: mode={mode!r} is not one of {', '.join(_PAD_MODES)}; concatenate the borders instead"
        )
    choice(mode, _PAD_MODES, "mode")
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * node.ndim
        for key, width in pad_width.items():
            for a in normalize_axes(key, node.ndim):
                pairs[a] = (width, width) if isinstance(width, int) else tuple(width)
        pad_width = pairs
    widths = _pairs("pad_width", pad_width, node.ndim, "iu")
    if (widths < 0).any():
        raise ValueError(f"index can't contain negative values: pad_width={shown(pad_width)}")
    values = _pairs("constant_values", constant_values, node.ndim)
    for axis, (low, high) in enumerate(widths.tolist()):
        if not low and not high:
            continue
        before: list[Expr]
        if mode in ("constant", "empty"):
            before, after = (
                [_border(node, axis, width, value if mode == "constant" else None)]
                for width, value in zip((low, high), values[axis])
            )
        else:
            n = node.shape[axis]
            if n == 0:
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
            before = _runs(node, axis, _mirror(mode, np.arange(-low, 0), n))
            after = _runs(node, axis, _mirror(mode, np.arange(n, n + high), n))
        node = joined([*before, node, *after], axis, node.dtype, node.env)
    return box(node)


def _pairs(name: str, value: Any, ndim: int, kinds: str = "biufcmM") -> HostArray:
    array = host_array(value, name, kinds=kinds)
    try:
        return np.broadcast_to(array, (ndim, 2))
    except ValueError:
        raise ValueError(
            f"operands could not be broadcast together: {name} of shape {array.shape} for {ndim} axes"
        ) from None


def _border(node: Expr, axis: int, width: int, value: Any) -> Expr:
    shape = (*node.shape[:axis], width, *node.shape[axis + 1 :])
    if value is None:
        return bind_create(EMPTY, shape, node.dtype, node.env)
    return constant(shape, np.asarray(value).astype(node.dtype)[()], node.dtype, node.env)


def _mirror(mode: str, index: HostArray, n: int) -> HostArray:
    """Return the elements 0 .. n-1 that stand at `index` outside of them."""
    if mode == "edge" or (mode == "reflect" and n == 1):
        nearest: HostArray = np.clip(index, 0, n - 1)
        return nearest
    if mode == "wrap":
        return index % n
    period, last = (2 * n, 2 * n - 1) if mode == "symmetric" else (2 * n - 2, 2 * n - 2)
    folded = index % period
    mirrored: HostArray = np.minimum(folded, last - folded)
    return mirrored


def _runs(node: Expr, axis: int, index: HostArray) -> list[Expr]:
    """Return the elements at `index` along `axis`, as one view for each run of constant step."""
    runs = []
    i = 0
    while i < len(index):
        step = int(index[i + 1] - index[i]) if i + 1 < len(index) else 1
        breaks = np.flatnonzero(np.diff(index[i:]) != step)
        length = int(breaks[0]) + 1 if len(breaks) else len(index) - i
        runs.append(bind_get(node, slice_lens(node.shape, axis, int(index[i]), length, step)))
        i += length
    return runs
