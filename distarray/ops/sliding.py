"""Sliding windows: views of every window of an array, and reductions over them.

`expr.lens.Sliding` is the view. What it shows has each element of the source once for every window that holds it: read
as a whole it is made tile by tile, each from the tile of its source and what follows it. A reduction over windows is
made of shifted slices of the source instead (`over_windows`), and the windows are never there.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from distarray.expr.bind import bind_create, bind_get, bind_windows
from distarray.expr.expr import GET, Expr, cut_of
from distarray.expr.lens import Affine, Sliding
from distarray.expr.op import declare
from distarray.expr.params import SlidingParams
from distarray.expr.rewrite import FULL
from distarray.expr.tiles import Bounds, Windows
from distarray.ops import elementwise
from distarray.ops.manipulation import sliced
from distarray.ops.programs import over_all_places
from distarray.sharding.sharding import Sharding
from distarray.types import DType

#: params: (window, axes)
SLIDING = declare("sliding_window_view", "windows")

#: Slices of one axis that are combined one by one; longer windows by doubling.
DIRECT = 16
#: Elements of a window up to which its variance is made of shifted slices.
VARIANCE_ELEMENTS = 256

Combine = Callable[[Any, Any], Any]


# ---------------------------------------------------------------------------------------------------- reading


def read_windows(x: Expr, sliding: Sliding, then: Affine | None = None) -> Expr:
    """Return the windows of `x`, or what a lens sees of them: only the windows, and elements of them, that it
    reaches.
    """
    if then is None:
        return _bound(x, sliding)
    if 0 in then.shape:
        return bind_create(FULL, then.shape, x.dtype, x.env, (), np.zeros((), x.dtype)[()])
    everything = tuple([range(n) for n in then.shape])
    frame = tuple([range(r.start, r.stop) for r in then.source_box(everything)])
    loops, windows = frame[: x.ndim], frame[x.ndim :]
    terms: list[tuple[int | None, int, int]] = []
    extents = []
    for axis, loop in enumerate(loops):
        own = [w for w, a in zip(windows, sliding.axes, strict=True) if a == axis]
        terms.append((axis, loop.start + sum(w.start for w in own), 1))
        extents.append(len(loop) + sum(len(w) - 1 for w in own))
    part = bind_get(x, Affine(tuple(extents), tuple(terms)))
    inner = Sliding(tuple(map(len, windows)), sliding.axes, tuple(map(len, frame)))
    return bind_get(_bound(part, inner), then.restricted(everything, frame))


def _bound(x: Expr, sliding: Sliding) -> Expr:
    cut = _cut(x)
    known: tuple[Bounds, ...] = tuple([(0, n) for n in x.shape]) if cut is None else cut.boundaries(x.shape)
    bounds: list[Bounds] = []
    reads = []
    for axis, (own, m) in enumerate(zip(known, sliding.shape)):
        more = x.shape[axis] - m
        made = tuple([min(b, m) for b in own])
        bounds.append(made)
        reads.append((axis, tuple([(a, b + more if b > a else a) for a, b in pairwise(made)])))
    bounds += [(0, n) for n in sliding.window]
    lies = None
    if cut is not None:
        lies = Sharding(cut.mesh, (*cut.axes, *((),) * len(sliding.window)))
    windows = Windows((tuple(reads),), tuple(bounds))
    return bind_windows(SLIDING, (x,), windows, x.dtype, lies, SlidingParams(sliding.window, sliding.axes))


def _cut(x: Expr) -> Sharding | None:
    """Return how the tiles of a view of windows follow its source; None for one tile."""
    known = cut_of(x)
    if known is not None:
        return known if known.n_tiles > 1 else None
    if x.env.team is None or not x.ndim or x.nbytes <= x.env.block_nbytes:
        return None
    n = x.env.team.mesh.size
    cut = over_all_places(x, x.ndim, max(range(x.ndim), key=lambda a: (x.shape[a] >= n, -a)))
    return cut if cut.n_tiles > 1 else None


# -------------------------------------------------------------------------------------------------- reductions


def over_windows(
    name: str, node: Expr, axes: tuple[int, ...], dtype: DType, less: float
) -> tuple[Expr, tuple[int, ...]] | None:
    """Return the reduction of a view of windows over the windows, and the axes that are gone with it.

    Parameters
    ----------
    node
        Any node.
    less
        What a variance is divided by less than the number of elements.

    Returns
    -------
    tuple or None
        None where `node` shows no whole windows, `axes` leaves a part of them, or there is no such form.
    """
    lens: Affine | None = None
    view = node
    if node.op is GET and (seen := node.unsettled()) is not None and type(seen[0][0]) is Expr:
        view, lens = seen[0][0], seen[1]
    if view.op is not SLIDING or (windowed := view.unsettled()) is None:
        return None
    (x,) = windowed[0]
    assert type(x) is Expr
    gone = tuple(range(x.ndim, view.ndim))
    if lens is not None:
        terms = lens.terms[x.ndim :]
        if any(a is None or (b, c) != (0, 1) or node.shape[a] != n for (a, b, c), n in zip(terms, view.params.window)):
            return None
        gone = tuple([a for a, _, _ in terms if a is not None])
        if len(gone) != len({*gone}) or any(t[0] in gone for t in lens.terms[: x.ndim]):
            return None
    if not set(gone) <= set(axes):
        return None
    made = _made(name, x, view, len(axes) == len(gone), dtype, less)
    if made is None or lens is None:
        return None if made is None else (made, gone)
    place = {a: i for i, a in enumerate([a for a in range(node.ndim) if a not in gone])}
    loops = [(None if a is None else place[a], b, c) for a, b, c in lens.terms[: x.ndim]]
    return bind_get(made, Affine(tuple([node.shape[a] for a in place]), tuple(loops))), gone


def _made(name: str, x: Expr, view: Expr, is_alone: bool, dtype: DType, less: float) -> Expr | None:
    """Return the reduction over the windows of `x` alone; `is_alone`: over nothing else."""
    window, own = view.params
    if name in ("var", "std"):
        has_form = is_alone and less < prod(window) <= VARIANCE_ELEMENTS and x.dtype.kind != "c"
        return _spread(name, x, window, own, dtype, less) if has_form else None
    found = _COMBINED.get(name)
    if found is None:
        return None
    combine, prepare = found
    made = prepare(x, dtype)
    for w, axis in zip(window, own, strict=True):
        made = _along(combine, made, w, axis)
    if name == "mean":
        made = elementwise.divide(made, prod(window))
    return _as(made, dtype) if name not in ("max", "min") else made


def _as(x: Expr, dtype: Any) -> Expr:
    return elementwise.astype(x, dtype, copy=False)


def _wide(x: Expr, dtype: DType) -> Expr:
    """Return an array in the dtype in which sums run: half floats in single, as numpy does."""
    return _as(x, np.float32 if dtype == np.float16 else dtype)


#: How two neighbours combine, and what is done with elements before, in a reduction to some dtype.
_COMBINED: dict[str, tuple[Combine, Callable[[Expr, DType], Expr]]] = {
    "sum": (elementwise.add, _wide),
    "mean": (elementwise.add, _wide),
    "prod": (elementwise.multiply, _wide),
    "max": (elementwise.maximum, lambda x, _: x),
    "min": (elementwise.minimum, lambda x, _: x),
    "any": (elementwise.logical_or, lambda x, _: _as(x, np.bool_)),
    "all": (elementwise.logical_and, lambda x, _: _as(x, np.bool_)),
    "count_nonzero": (elementwise.add, lambda x, dtype: _as(_as(x, np.bool_), dtype)),
}


def _along(combine: Combine, x: Expr, window: int, axis: int) -> Expr:
    """Return the windows of one axis combined.

    Short ones slice by slice in one pass over the source. Longer ones by doubling: what two neighbours of `k` elements
    give is what `2k` give, and the binary digits of the length say which of these make the window. That is a pass for
    each digit, where the slices would be as many as the window has elements; and sums are pairwise.
    """
    n = x.shape[axis] - window + 1
    if window <= DIRECT:
        total = sliced(x, axis, 0, n)
        for start in range(1, window):
            total = combine(total, sliced(x, axis, start, n))
        return total
    result: Expr | None = None
    covered, size, power = 0, 1, x
    while True:
        if window & size:
            piece = sliced(power, axis, covered, n)
            result = piece if result is None else combine(result, piece)
            covered += size
        if 2 * size > window:
            break
        m = x.shape[axis] - 2 * size + 1
        power = combine(sliced(power, axis, 0, m), sliced(power, axis, size, m))
        size *= 2
    assert result is not None
    return result


def _spread(name: str, x: Expr, window: tuple[int, ...], axes: tuple[int, ...], dtype: DType, less: float) -> Expr:
    """Return variance or standard deviation of each window: the squares of the distances from its mean, slice by
    slice.
    """
    count = prod(window)
    x = _wide(x, dtype)
    mean = x
    for w, axis in zip(window, axes, strict=True):
        mean = _along(elementwise.add, mean, w, axis)
    mean = elementwise.divide(mean, count)
    total: Any = None
    for offsets in product(*map(range, window)):
        part = x
        for axis in range(x.ndim):
            start = sum(k for k, a in zip(offsets, axes, strict=True) if a == axis)
            part = sliced(part, axis, start, mean.shape[axis])
        away = elementwise.square(elementwise.subtract(part, mean))
        total = away if total is None else elementwise.add(total, away)
    result = elementwise.divide(total, count - less)
    return _as(elementwise.sqrt(result) if name == "std" else result, dtype)
