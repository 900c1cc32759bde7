"""Kernels by name of the operation: what runs on the blocks of one task.

`CREATE` makes a block from its global index box, `BLOCK` holds operations on whole blocks, `contract` is the product of
two blocks, `take` and `put_*` are the sides of integer-array reads and writes. A kernel gets the namespace `xp` of its
blocks and uses the standard's functions, so that one kernel serves NumPy, CuPy and array_api_strict; where numpy has a
faster or a richer way, that way stands behind `is_strict`. Elementwise kernels are in `elementwise`, monoids in
`monoids`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from distarray.errors import NotSupportedError
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.indexing import check_indices
from distarray.expr.lens import windows_of
from distarray.expr.params import IndexParams
from distarray.forks import free_in_child
from distarray.kernels import fourier, ufuncs, window_products
from distarray.kernels.masks import where_true
from distarray.kernels.namespaces import Block, Namespace, Params, dtype_of, indices, is_strict, placed
from distarray.sharding.boxes import Box
from distarray.types import DType

# ------------------------------------------------------------------------------------------------------- creation

Bounds: TypeAlias = tuple[tuple[int, int], ...]


def _extents(box: Bounds) -> tuple[int, ...]:
    return tuple([hi - lo for lo, hi in box])


def _empty(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
    return backend.empty(_extents(box), dtype)


def _full(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
    if dtype.kind in "mM":
        return backend.xp.full(_extents(box), runtime, dtype=dtype_of(backend.xp, dtype))
    if not runtime and not np.signbit(runtime.real) and not np.signbit(runtime.imag):
        # fresh pages are zero already
        return backend.zeros(_extents(box), dtype)
    xp = backend.xp
    if xp is np:
        made = backend.empty(_extents(box), dtype)
        made.fill(runtime)
        return made
    return xp.full(_extents(box), runtime.item(), dtype=dtype_of(xp, dtype), **placed(xp, backend))


def _arange(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
    ((lo, hi),) = box
    xp = backend.xp
    first, second = runtime
    index = indices(backend, lo, hi)
    # numpy's fill: x[i] = first + i * (second - first), in the dtype of the result; x[0] and x[1] are given.
    if dtype.kind in "biumM":
        bits = np.dtype(np.int64 if dtype.kind in "mMbi" else np.uint64)
        start, after = (int(v.astype(np.int64)) if dtype.kind in "mM" else int(v) for v in (first, second))
        if dtype.kind == "u":
            index = xp.astype(index, dtype_of(xp, bits))
        # Python's step, wrapped: differences of unsigned numbers may be negative
        step = _wrapped(after - start, bits)
        values = index * step + _wrapped(start, bits)
        if dtype.kind in "mM":
            return values.view(dtype)
        return xp.astype(values, dtype_of(xp, dtype))
    if dtype.kind == "c":
        parts = [_floats(backend, index, getattr(first, p), getattr(second, p)) for p in ("real", "imag")]
        values = xp.astype(parts[0], dtype_of(xp, dtype)) + xp.astype(parts[1], dtype_of(xp, dtype)) * 1j
    else:
        values = xp.astype(_floats(backend, index, first, second), dtype_of(xp, dtype))
    for i, given in enumerate(runtime):
        if lo <= i < hi:
            values[i - lo] = given.item()
    return values


def _wrapped(value: int, dtype: DType) -> int:
    return int(np.array(value & (2**64 - 1), np.uint64).astype(dtype))


def _floats(backend: Any, index: Block, first: Any, second: Any) -> Block:
    # half floats are computed in single, as numpy does
    working = np.dtype(np.float32) if first.dtype == np.float16 else first.dtype
    with np.errstate(all="ignore"):
        start = working.type(first)
        step = working.type(second) - start
        return backend.xp.astype(index, dtype_of(backend.xp, working)) * float(step) + float(start)


def _linspace(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
    ((lo, hi),) = box
    xp = backend.xp
    v = runtime
    floating = np.dtype(v.dtype)
    y = xp.astype(indices(backend, lo, hi), dtype_of(xp, floating))
    with np.errstate(all="ignore"):
        if v.div:
            y = y / v.div
        y = y * floating.type(v.step).item() + floating.type(v.start).item()
    if v.has_endpoint and lo < v.num <= hi:
        y[v.num - 1 - lo] = floating.type(v.stop).item()
    if dtype.kind in "iu":
        y = xp.floor(y)
    return xp.astype(y, dtype_of(xp, dtype), copy=False)


def _eye(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
    (top, bottom), (left, right) = box
    # element (i, j) of the block is (i + top, j + left): its diagonal k is the global one's k + top - left
    xp, k = backend.xp, runtime + top - left
    return xp.eye(bottom - top, right - left, k=k, dtype=dtype_of(xp, dtype), **placed(xp, backend))


def _tri(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
    (top, bottom), (left, right) = box
    xp, k = backend.xp, runtime + top - left
    if not is_strict(xp):
        return xp.tri(bottom - top, right - left, k, dtype=dtype)
    rows = xp.reshape(indices(backend, 0, bottom - top), (-1, 1))
    return xp.astype(indices(backend, 0, right - left) <= rows + k, dtype_of(xp, dtype))


#: Elements that kernels of several steps make at a time on the host: what they need in between stays in cache.
SLICE = 8_192


def _by_slices(kernel: Callable[..., Block]) -> Callable[..., Block]:
    """Return a kernel that makes a vector slice by slice: of what it makes on the way there is never more than a
    slice.
    """

    def sliced(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: DType, params: Params, runtime: Any) -> Block:
        ((lo, hi),) = box
        if backend.xp is not np or hi - lo <= 2 * SLICE:
            return kernel(backend, box, shape, dtype, params, runtime)
        out = backend.empty((hi - lo,), dtype)
        for start in range(lo, hi, SLICE):
            stop = min(start + SLICE, hi)
            out[start - lo : stop - lo] = kernel(backend, ((start, stop),), shape, dtype, params, runtime)
        return out

    return sliced


class _Table(dict[str, Callable[..., Any]]):
    """Kernels by name. Those of other files are loaded when one that is not here is asked for: small arrays that are
    added never need what sorts and factorises.
    """

    def __init__(self, here: dict[str, Callable[..., Any]], name: str, *files: str) -> None:
        super().__init__(here)
        self._name, self._files = name, files
        self._lock = free_in_child(threading.Lock())  # tasks of several threads may ask first

    def __missing__(self, kernel: str) -> Callable[..., Any]:
        with self._lock:
            for file in self._files:
                self.update(getattr(import_module(f"distarray.kernels.{file}"), self._name))
            self._files = ()
        found = self.get(kernel)
        if found is None:
            raise KeyError(kernel)
        return found


#: ``(out, *blocks, params=params)``: kernels of `BLOCK` that fill a NumPy block: see `backends.empty_for`.
FILL: dict[str, Callable[..., None]] = {**fourier.FILL, **ufuncs.FILL, **window_products.FILL}
#: ``(out, *blocks, params=params, start=start)``: kernels that fill a block of any backend, and have to know where that
#: begins along the first loop.
PLACED: dict[str, Callable[..., None]] = window_products.PLACED
#: ``(shape and dtype of the first block, params) -> bytes`` that a kernel has beside its blocks and its result, if they
#: are many.
SCRATCH: dict[str, Callable[[Sequence[int], DType, Any], int]] = {"fft": fourier.scratch_nbytes}
#: ``(backend, box, global shape, dtype, params, runtime) -> block``; box: (low, high) per axis.
CREATE = _Table(
    {
        "empty": _empty,
        "full": _full,
        "constant": _full,
        "arange": _by_slices(_arange),
        "linspace": _by_slices(_linspace),
        "eye": _eye,
        "tri": _tri,
    },
    "CREATE",
    "fourier",
    "random",
    "stores",
)

# ------------------------------------------------------------------------------------------- integer-array reads


def _broadcast(xp: Namespace, index: Sequence[Block]) -> list[Block]:
    if len(index) < 2:
        return list(index)
    shape = broadcast_shapes(*[i.shape for i in index])
    return [i if i.shape == shape else xp.broadcast_to(i, shape) for i in index]


def _positions(xp: Namespace, index: Block, extent: Block, params: Params) -> Block:
    """Return the positions that count from the front; numpy's IndexError for those outside. The first of the params is
    the axis.

    On other devices than the host nothing is looked at: the answer would have to be waited for.
    """
    if xp is np:
        return check_indices(index, int(extent), params[0]).astype(np.int64, copy=False)
    index = xp.astype(index, dtype_of(xp, np.dtype(np.int64)), copy=False)
    return xp.where(index < 0, index + extent, index)


def take(xp: Namespace, x: Block, index: Sequence[Block], params: IndexParams) -> Block:
    """Return the elements of a whole array at integer positions.

    Parameters
    ----------
    index
        One array for each indexed axis; they broadcast.
    """
    axes, position, n_index, _ = params
    if xp is np and len(axes) == 1 and position == axes[0] and x.flags.c_contiguous:  # else numpy copies all of it
        return np.asarray(np.take(x, index[0], axis=position))
    picked = _pick(xp, x, _broadcast(xp, index), axes)
    return _move_front(xp, picked, n_index, position)


def _pick(xp: Namespace, x: Block, index: Sequence[Block], axes: Sequence[int]) -> Block:
    """Return the elements at broadcast positions; their axes first."""
    rest = [a for a in range(x.ndim) if a not in axes]
    front = x if [*axes, *rest] == list(range(x.ndim)) else xp.permute_dims(x, (*axes, *rest))
    if not is_strict(xp):
        shape = index[0].shape
        picked = front[tuple(index)]
        return picked if picked.ndim == len(rest) + len(shape) else xp.asarray(picked)
    shape = index[0].shape
    inner = tuple(front.shape[len(axes) :])
    flat = xp.reshape(front, (math.prod(front.shape[: len(axes)]), *inner))
    at = xp.zeros_like(index[0])
    for i, n in zip(index, front.shape):
        at = at * n + i
    return xp.reshape(xp.take(flat, xp.reshape(at, (-1,)), axis=0), (*shape, *inner))


def _move_front(xp: Namespace, x: Block, n: int, to: int) -> Block:
    """Return the first `n` axes moved to stand at `to`; contiguous, since results are kept."""
    if not to or not n:
        return x
    order = (*range(n, n + to), *range(n), *range(n + to, x.ndim))
    moved = xp.permute_dims(x, order)
    return moved if is_strict(xp) else xp.ascontiguousarray(moved)


def take_part(
    xp: Namespace, x: Block, index: Sequence[Block], start: Sequence[int], params: IndexParams
) -> tuple[Block, Block, tuple[int, ...]]:
    """Return what one tile of the source has of a tile of the result.

    Parameters
    ----------
    x
        The part of the source.
    start
        Where `x` begins: along indexed axes in the source, along the others in the tile of the result.

    Returns
    -------
    positions
        Flat, in C order of the broadcast index arrays: those that `x` has.
    values
        Their elements, positions first.
    start
        Where the values begin along the axes that are not indexed.
    """
    axes = params.axes
    arrays = [xp.reshape(i, (-1,)) for i in _broadcast(xp, index)]
    positions, local = _inside(xp, arrays, [range(start[a], start[a] + x.shape[a]) for a in axes])
    values = _pick(xp, x, local, axes)
    return positions, values, tuple(s for a, s in enumerate(start) if a not in axes)


def _inside(xp: Namespace, arrays: Sequence[Block], frames: Sequence[range]) -> tuple[Block, list[Block]]:
    """Return which of the flat positions along some axes lie in a box, and where they lie in it along each axis."""
    here = None
    for i, f in zip(arrays, frames):
        inside = (i >= f.start) & (i < f.stop)
        here = inside if here is None else here & inside
    (positions,) = xp.nonzero(here)
    return positions, [xp.take(i, positions, axis=0) - f.start for i, f in zip(arrays, frames)]


def take_join(backend: Any, shape: tuple[int, ...], dtype: DType, parts: Sequence[Any], params: Params) -> Block:
    """Return a tile of the result from the parts of `take_part`.

    Raises
    ------
    IndexError
        If positions are missing: no tile has them.
    """
    _, position, n_index = params[:3]
    xp = backend.xp
    index_shape = shape[position : position + n_index]
    rest = (*shape[:position], *shape[position + n_index :])
    out = backend.empty((math.prod(index_shape), *rest), dtype)
    if is_strict(xp):
        parts = _in_order(xp, parts)
    for positions, values, start in parts:
        places = tuple(slice(s, s + n) for s, n in zip(start, values.shape[1:]))
        out[(positions, *places)] = values
    if sum(math.prod(values.shape) for _, values, _ in parts) != math.prod(out.shape):
        raise IndexError("an index is out of bounds of the axis that it runs over")
    return _move_front(xp, xp.reshape(out, (*index_shape, *rest)), n_index, position)


def _in_order(xp: Namespace, parts: Sequence[Any]) -> list[Any]:
    """Return the parts joined to runs of positions without gaps: the standard writes at slices only."""
    by_start: dict[tuple[int, ...], list[Any]] = {}
    for part in parts:
        by_start.setdefault(tuple(part[2]), []).append(part)
    joined = []
    for start, group in by_start.items():
        order = xp.argsort(xp.concat([positions for positions, _, _ in group]))
        values = xp.take(xp.concat([values for _, values, _ in group]), order, axis=0)
        joined.append((slice(0, values.shape[0]), values, start))
    return joined


# ------------------------------------------------------------------------------------------ integer-array writes


def put_whole(xp: Namespace, new: Block, value: Block, index: Sequence[Block], params: IndexParams) -> None:
    """Write `value` at integer positions of a whole array, in C order of the index arrays: the last one stays.

    Parameters
    ----------
    new
        Changed in place.
    value
        Broadcasts to the shape that reading would have.
    """
    axes, position, n_index, mode = params
    arrays = _broadcast(xp, index)
    rest = [n for a, n in enumerate(new.shape) if a not in axes]
    shape = (*rest[:position], *arrays[0].shape, *rest[position:])
    values = _move_back(xp, xp.broadcast_to(value, shape), n_index, position)
    flat = xp.reshape(values, (math.prod(arrays[0].shape), *rest))
    _write(xp, new, flat, [xp.reshape(i, (-1,)) for i in arrays], axes, [slice(None)] * len(rest), mode)


def _move_back(xp: Namespace, x: Block, n: int, at: int) -> Block:
    """Return the `n` axes at `at` moved to the front."""
    if not at or not n:
        return x
    return xp.permute_dims(x, (*range(at, at + n), *range(at), *range(at + n, x.ndim)))


def _write(
    xp: Namespace, new: Block, values: Block, at: Sequence[Block], axes: Sequence[int], places: list[slice], mode: str
) -> None:
    """Write values, positions first, at flat positions along `axes` and slices along the others."""
    rest = [a for a in range(new.ndim) if a not in axes]
    # a view with the indexed axes in front
    front = xp.permute_dims(new, (*axes, *rest))
    key = (*at, *places)
    if is_strict(xp):
        raise NotSupportedError("writes at integer positions are not on strict: the standard has none")
    if values.dtype != new.dtype and (mode == "set" or values.dtype.kind in "mM"):
        values = values.astype(new.dtype)
    if mode == "set":
        # numpy promises the last of repeated indices for one array; others get it by writing the last ones only
        if xp is not np:
            at, values = _last_ones(xp, front.shape, at, values)
            key = (*at, *places)
        front[key] = values
    else:
        ufunc = getattr(xp, mode)
        view = front[(..., *places)] if places else front
        ufunc.at(view, tuple(at), *(values,)[: ufunc.nin - 1])


def _last_ones(xp: Namespace, shape: tuple[int, ...], at: Sequence[Block], values: Block) -> tuple[list[Block], Block]:
    """Leave out the positions that come again later: on a GPU the order of writes is open."""
    flat = xp.zeros_like(at[0])
    for i, n in zip(at, shape):
        flat = flat * n + i
    _, first = xp.unique(flat[::-1], return_index=True)
    last = flat.shape[0] - 1 - first
    return [i[last] for i in at], values[last]


def put_part(
    xp: Namespace, value: Block, index: Sequence[Block], box: tuple[Box, Box], params: IndexParams, *, is_whole: bool
) -> tuple[Any, ...]:
    """Return what one tile of values writes into one tile of the base.

    Parameters
    ----------
    value, index
        Broadcast to the box of the values.
    box
        The tile of the base, and the box of the values: both in global coordinates, equal along the axes that are not
        indexed or within them.
    is_whole
        Whether the tile has all of the axes that are indexed: then nothing is looked for, and nothing copied.

    Returns
    -------
    tuple
        The values, positions first; where they begin in the tile along the axes that are not indexed; for each indexed
        axis the positions in the tile. In C order of the index arrays.
    """
    axes, position, n_index, _ = params
    frame, own = box
    rest = [a for a in range(len(frame)) if a not in axes]
    loops = [k if k < position else k + n_index for k in range(len(rest))]
    start = tuple(own[loop].start - frame[a].start for loop, a in zip(loops, rest))
    arrays = []
    for i in index:
        i = _move_back(xp, i, n_index, position)
        arrays.append(xp.reshape(i[(..., *(0 for _ in rest))], (-1,)))
    values = _move_back(xp, value, n_index, position)
    flat = xp.reshape(values, (arrays[0].shape[0], *values.shape[n_index:]))
    if is_whole:
        return (flat, start, *arrays)
    positions, local = _inside(xp, arrays, [frame[a] for a in axes])
    return (xp.take(flat, positions, axis=0), start, *local)


def put_apply(xp: Namespace, new: Block, part: tuple[Any, ...], params: IndexParams) -> None:
    """Write a part of `put_part` into the tile of the base that it was made for."""
    axes, mode = params.axes, params.mode
    values, start, *at = part
    places = [slice(s, s + n) for s, n in zip(start, values.shape[1:])]
    _write(xp, new, values, at, axes, places, mode)


# ---------------------------------------------------------------------------------------------------- whole blocks


def _take_along_axis(xp: Namespace, x: Block, index: Block, *, params: Params) -> Block:
    return xp.take_along_axis(x, index, axis=-1)


def _mask_counts(xp: Namespace, mask: Block, params: Params) -> Block:
    """Return the number of true elements, as an array of one."""
    # asarray: before numpy 2.3 the count is a Python integer
    return xp.reshape(xp.astype(xp.asarray(xp.count_nonzero(mask)), dtype_of(xp, np.dtype(np.int64))), (1,))


def _sliding_window_view(xp: Namespace, x: Block, params: Params) -> Block:
    """Return every window of a block; params are (window, axes, tile)."""
    return xp.asarray(windows_of(x, *params[:2]), copy=True)


def _nonzero(xp: Namespace, mask: Block, params: Params) -> Any:
    """Return global positions of the true elements; the last of `params` is where the block begins."""
    at = where_true(mask) if xp is np else xp.nonzero(mask)
    # numpy's positions of several axes are columns of one array: any of them would keep all.
    is_own = len(at) == 1 or xp is not np
    found = tuple([i if is_own and not lo else i + lo for i, lo in zip(at, params[-1], strict=True)])
    return found[0] if len(found) == 1 else found


#: ``(xp, *blocks, params=params) -> block``, or a tuple of blocks for an operation with several results.
BLOCK = _Table(
    {
        "sliding_window_view": _sliding_window_view,
        "mask_counts": _mask_counts,
        "nonzero": _nonzero,
        "take_along_axis": _take_along_axis,
        "positions": _positions,
    },
    "BLOCK",
    "bits",
    "first_few",
    "fourier",
    "random_maps",
    "linalg",
    "panels",
    "sorting",
    "ufuncs",
    "user_functions",
    "window_products",
)
