"""``map_overlap``: user functions on tiles and what lies around them, in Dask's spelling.

Each tile reads its own box enlarged by the depth. What of that lies elsewhere is routed from the tiles that hold it,
however many those are, in one exchange: no padded copy of the array is made, and nothing is cut again. What lies beyond
the edges of the array is made where it is read, but for periodic boundaries, which read the other end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from distarray.arguments import integer, integers, normalize_axes, number, shown
from distarray.composed.blockwise import ResultAxes, block_bounds, map_blocks
from distarray.composed.grid import grid_over, ranges_of
from distarray.composed.user_function import MAP_WINDOWS, InformedFunction, arguments, dtype_of, is_array
from distarray.errors import NotSupportedError
from distarray.expr.bind import bind_windows
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr
from distarray.expr.tiles import Bounds, Ranges, Windows
from distarray.kernels.user_functions import checked_block
from distarray.types import DTypeLike

_KINDS = ("none", "reflect", "nearest", "periodic")


class Halo(NamedTuple):
    """A Halo says how many elements a tile reads before and after itself along one axis, and what stands for those
    beyond the edge.

    Parameters
    ----------
    before, after
        Elements.
    boundary
        What is there beyond the edge of the array: ``none`` (nothing), ``reflect`` (the edge and what follows it,
        mirrored), ``nearest`` (the edge), ``periodic`` (the other end), or a number.
    """

    before: int = 0
    after: int = 0
    boundary: Any = "none"

    def parts(self, bounds: Bounds) -> list[Ranges]:
        """Return what each tile reads, as ranges that follow each other: the far end, the tile and its neighbours, the
        front.

        The ends are there for periodic boundaries that reach them.
        """
        n = bounds[-1]
        tiles = ranges_of(bounds)
        main = tuple([self._main(a, b, n) for a, b in tiles])
        if self.boundary != "periodic":
            return [main]
        some = [a < b and b - a < n for a, b in tiles]  # a tile that is the whole axis has its other end
        left = tuple([(n - max(0, self.before - a) if s else n, n) for (a, _), s in zip(tiles, some, strict=True)])
        right = tuple([(0, max(0, b + self.after - n) if s else 0) for (_, b), s in zip(tiles, some, strict=True)])
        return [r for r in (left, main, right) if r is main or any(a < b for a, b in r)]

    def _main(self, a: int, b: int, n: int) -> tuple[int, int]:
        if a == b:
            return a, a
        start, stop = max(0, a - self.before), min(n, b + self.after)
        if self.boundary == "reflect":
            # A mirrored halo may reach further into the array than the tile and its other halo do.
            start, stop = min(start, n - max(0, b + self.after - n)), max(stop, self.before - a)
        return start, stop

    def around(self, a: int, b: int, n: int) -> tuple[int, int]:
        """Return how many elements there are before and after a tile in its enlarged block."""
        if self.boundary != "none":
            return self.before, self.after
        return min(self.before, a), min(self.after, n - b)

    def padded(self, xp: Any, block: Any, axis: int, tile: tuple[int, int], n: int) -> Any:
        """Return the enlarged block of what a tile has read along an axis."""
        a, b = tile
        if not (self.before or self.after) or self.boundary == "none" or (self.boundary == "periodic" and b - a < n):
            return block
        start, _ = self._main(a, b, n)
        left, right = max(0, self.before - a), max(0, b + self.after - n)
        low, high = max(0, a - self.before) - start, min(n, b + self.after) - start
        size = block.shape[axis]
        pieces = [_along(block, axis, slice(low, high))]
        if self.boundary == "periodic":
            pieces = [_along(block, axis, slice(size - left, size)), *pieces, _along(block, axis, slice(0, right))]
        elif self.boundary == "reflect":
            before, after = _along(block, axis, slice(0, left)), _along(block, axis, slice(size - right, size))
            pieces = [xp.flip(before, axis=axis), *pieces, xp.flip(after, axis=axis)]
        else:
            before, after = _along(block, axis, slice(0, 1)), _along(block, axis, slice(size - 1, size))
            pieces = [self._edge(xp, before, axis, left), *pieces, self._edge(xp, after, axis, right)]
        return xp.concat(pieces, axis=axis)

    def _edge(self, xp: Any, edge: Any, axis: int, n: int) -> Any:
        shape = (*edge.shape[:axis], n, *edge.shape[axis + 1 :])
        if self.boundary == "nearest":
            return xp.broadcast_to(edge, shape)
        return xp.full_like(xp.broadcast_to(edge, shape), self.boundary)


def _along(block: Any, axis: int, part: slice) -> Any:
    return block[(*(slice(None),) * axis, part, ...)]


def map_overlap(
    func: Callable[..., Any],
    *args: Any,
    depth: Any = None,
    boundary: Any = None,
    trim: bool = True,
    align_arrays: bool = True,
    allow_rechunk: bool = True,
    dtype: DTypeLike = None,
    chunks: Any = None,
    drop_axis: int | Sequence[int] | None = None,
    new_axis: int | Sequence[int] | None = None,
    name: str | None = None,
    meta: Any = None,
    token: Any = None,
    infer: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function on the tiles of arrays, each with some of its surroundings.

    Parameters
    ----------
    func
        Takes one enlarged block for each array, and gives one of their shape (but for `drop_axis` and `new_axis`).
    *args
        Arrays that broadcast together. The tiles are those of the largest as it lies.
    depth
        How many elements around a tile the function sees: an int for all axes, one for each axis, or a dict of axes.
        In place of an int, a pair (before, after). A list has an entry for each array.
    boundary
        What it sees beyond the edges: ``"none"`` (the default: nothing), ``"reflect"``, ``"nearest"``, ``"periodic"``
        or a number; for all axes, for each, or a dict of axes. A list has an entry for each array.
    trim
        Cut the surroundings off the result. If false, the function gives blocks of the tiles' own extents, or of
        `chunks`.
    dtype
        Of the result. Needed, since the function is not tried out to learn it, unless by `infer`.
    chunks
        With ``trim=False``: the extents of the blocks that the function gives, for each axis an int or one for each
        block.
    drop_axis, new_axis
        Axes that the result lacks (they are never cut), and axes of extent 1 that it adds.
    infer
        Call the function once, on the surroundings of one element, to learn the dtype.
    align_arrays, allow_rechunk, name, meta, token
        Accepted for Dask's sake: a depth may be larger than a tile, and nothing is cut again.
    **kwargs
        Passed to the function.

    Returns
    -------
    DistArray
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    ValueError
        If a depth is larger than the array, or a boundary is none.

    Examples
    --------
    >>> import distarray as dx
    >>> x = dx.asarray([1.0, 2.0, 4.0, 8.0])
    >>> def slope(block):
    ...     return block[2:] - block[:-2]
    >>> dx.map_overlap(slope, x, depth=1, boundary="reflect", trim=False, dtype="f8").tolist()
    [1.0, 3.0, 6.0, 4.0]
    """
    function, nodes, operands = arguments("map_overlap", func, args, kwargs)
    if not all(map(is_array, args)):
        raise TypeError("map_overlap: all arguments beside the function must be DistArrays; pass others by keyword")
    shape = broadcast_shapes(*[n.shape for n in nodes])
    halos = tuple([_halos(n, d, b) for n, d, b in zip(nodes, _each(depth, nodes), _each(boundary, nodes), strict=True)])
    if chunks is not None and trim:
        raise NotSupportedError(
            "map_overlap: blocks of other extents cannot be trimmed; let the function trim them, and say trim=False"
        )
    if not any(h.before or h.after for own in halos for h in own):
        return map_blocks(
            func, *args, dtype=dtype, chunks=chunks, drop_axis=drop_axis, new_axis=new_axis, infer=infer, **kwargs
        )
    axes = ResultAxes(shape, drop_axis, new_axis, None)
    of_operands = [range(len(shape) - n.ndim, len(shape)) for n in nodes]
    grid = grid_over(nodes, of_operands, shape).uncut(axes.dropped)
    bounds = tuple([(0, 1) if a is None else grid.bounds[a] for a in axes.of])
    if chunks is not None:
        if len(chunks) != len(bounds):
            raise ValueError(f"map_overlap: chunks={chunks!r} is not one entry for each of {len(bounds)} axes")
        bounds = tuple([block_bounds(c, b, i) for i, (c, b) in enumerate(zip(chunks, bounds, strict=True))])
    seen = [_operand(n, own, h, axes, grid.bounds) for n, own, h in zip(nodes, of_operands, halos, strict=True)]
    tiles = Windows(tuple([tuple([axis.tile_reads for axis in own]) for own in seen]), bounds)
    shapes = tuple([n.shape for n in nodes])
    unknown = InformedFunction(function, tuple(range(len(shapes))), shapes, tiles, np.dtype(np.float64))

    def example() -> Any:
        sizes = [[1 + (h.before + h.after if h.boundary != "none" else 0) for h in own] for own in halos]
        blocks = [np.ones(size, node.dtype) for size, node in zip(sizes, nodes, strict=True)]
        return function(*blocks, **unknown.information((0,) * len(bounds)))

    informed = replace(unknown, dtype=dtype_of("map_overlap", dtype, infer, example))
    highest = max(range(len(shapes)), key=lambda i: len(shapes[i]))
    late = _Overlapping(informed, tuple(seen), highest if trim else -1, tuple(axes.of))
    reads = [
        (node, chosen) for node, own in zip(nodes, seen, strict=True) for chosen in product(*[a.reads for a in own])
    ]
    windows = Windows(tuple([chosen for _, chosen in reads]), bounds, (late,))
    node = bind_windows(MAP_WINDOWS, [node for node, _ in reads], windows, informed.dtype, grid.cut(axes.of))
    return operands.box(node)


class _OperandAxis(NamedTuple):
    """An _OperandAxis is an axis of an operand of `map_overlap`.

    Parameters
    ----------
    axis
        The axis of the operands, broadcast, that it goes with.
    bounds
        The tiles along it.
    halo
        What tiles see beside themselves.
    reads
        What they read, part by part, as `Windows` have it.
    tile_reads
        Their own elements.
    """

    axis: int
    bounds: Bounds
    halo: Halo
    reads: tuple[tuple[int, Ranges] | None, ...]
    tile_reads: tuple[int, Ranges] | None


def _operand(
    node: Expr, own: Sequence[int], halos: Sequence[Halo], axes: ResultAxes, bounds: Sequence[Bounds]
) -> tuple[_OperandAxis, ...]:
    loop_of = {a: i for i, a in enumerate(axes.of) if a is not None}
    made = []
    for axis, n, halo in zip(own, node.shape, halos, strict=True):
        known, loop = bounds[axis], loop_of.get(axis)
        if n != known[-1]:
            if halo != Halo():
                raise ValueError(
                    f"map_overlap: axis {axis} of extent {n} broadcasts to {known[-1]}; give it depth 0, or an array "
                    "of the full extent"
                )
            known, loop = (0, n), None
        if loop is None:  # every tile has all of it
            made.append(_OperandAxis(axis, known, halo, (None,), None))
            continue
        reads = tuple([(loop, part) for part in halo.parts(known)])
        made.append(_OperandAxis(axis, known, halo, reads, (loop, ranges_of(known))))
    return tuple(made)


@dataclass(frozen=True, slots=True, eq=False)
class _Overlapping:
    """An _Overlapping is a user function on enlarged blocks, as `kernels.user_functions` calls it.

    Parameters
    ----------
    function
        The user's, which may ask for its place.
    operands
        The axes of each.
    trim_as
        The operand by whose depth the result is trimmed; -1: it is not.
    of
        For each axis of the result the axis of the operands, or None.
    """

    function: InformedFunction
    operands: tuple[tuple[_OperandAxis, ...], ...]
    trim_as: int
    of: tuple[int | None, ...]

    def on_tile(self, xp: Any, tile: tuple[int, ...], *parts: Any) -> Any:
        """Return what the function gives for a tile, trimmed; `xp` is the namespace of the blocks."""
        given = list(parts)
        blocks = []
        for axes in self.operands:
            n = int(np.prod([len(axis.reads) for axis in axes], dtype=int))
            block = _joined(xp, given[:n], [len(axis.reads) for axis in axes], 0)
            del given[:n]
            for i, axis in enumerate(axes):
                block = axis.halo.padded(xp, block, i, self._range(axis, tile), axis.bounds[-1])
            blocks.append(block)
        inner = self.function
        result = xp.asarray(inner.function(*blocks, **inner.information(tile)))
        shape = inner.tile_shape(tile)
        if self.trim_as < 0:
            return checked_block(result, shape, inner.dtype)
        around = self._around(tile)
        full = tuple([n + a + b for n, (a, b) in zip(shape, around, strict=True)])
        block = checked_block(result, full, inner.dtype)
        return block[tuple([slice(a, a + n) for n, (a, _) in zip(shape, around, strict=True)])]

    def _range(self, axis: _OperandAxis, tile: tuple[int, ...]) -> tuple[int, int]:
        return (0, axis.bounds[-1]) if axis.tile_reads is None else axis.tile_reads[1][tile[axis.tile_reads[0]]]

    def _around(self, tile: tuple[int, ...]) -> list[tuple[int, int]]:
        by_axis = {axis.axis: axis for axis in self.operands[self.trim_as]}
        found = []
        for a in self.of:
            axis = None if a is None else by_axis.get(a)
            found.append((0, 0) if axis is None else axis.halo.around(*self._range(axis, tile), axis.bounds[-1]))
        return found

    def __repr__(self) -> str:
        return repr(self.function)


def _joined(xp: Any, parts: Sequence[Any], counts: Sequence[int], axis: int) -> Any:
    """Return the parts in C order of their places, put together."""
    if len(parts) == 1:
        return parts[0]
    step = len(parts) // counts[axis]
    inner = [_joined(xp, parts[k : k + step], counts, axis + 1) for k in range(0, len(parts), step)]
    return xp.concat(inner, axis=axis) if len(inner) > 1 else inner[0]


# ------------------------------------------------------------------------------------------------ arguments


def _each(value: Any, nodes: Sequence[Expr]) -> list[Any]:
    """Return an argument for each array."""
    if not isinstance(value, list):
        return [value] * len(nodes)
    if len(value) != len(nodes):
        raise ValueError(f"map_overlap: a list of {len(value)} for {len(nodes)} arrays")
    return value


def _by_axis(value: Any, default: Any, ndim: int, name: str) -> list[Any]:
    if value is None:
        value = default
    if isinstance(value, tuple) and len(value) != ndim:
        raise ValueError(f"map_overlap: {name}={shown(value)} is not one entry for each of {ndim} axes")
    if isinstance(value, Mapping):
        axes = dict(zip(normalize_axes(tuple(value), ndim, f"{name}: axis"), value.values(), strict=True))
        return [axes.get(a, default) for a in range(ndim)]
    return list(value) if isinstance(value, tuple) else [value] * ndim


def _halos(node: Expr, depth: Any, boundary: Any) -> tuple[Halo, ...]:
    """Return the halo of each axis of an array."""
    kinds = _by_axis(boundary, "none", node.ndim, "boundary")
    depths = _by_axis(depth, 0, node.ndim, "depth")
    halos = []
    for axis, (n, d, kind) in enumerate(zip(node.shape, depths, kinds, strict=True)):
        before, after = integers(d, "depth") if isinstance(d, tuple) else (integer(d, "depth"),) * 2
        kind = "none" if kind is None else kind
        if not isinstance(kind, str):
            number(kind, "boundary")
        if isinstance(kind, str) and kind not in _KINDS:
            raise ValueError(f"map_overlap: boundary={kind!r} is none of {', '.join(_KINDS)}, and no number")
        if min(before, after) < 0:
            raise ValueError(f"map_overlap: depth={d} of axis {axis} is negative")
        if max(before, after) > n:
            raise ValueError(
                f"map_overlap: the depth {max(before, after)} of axis {axis} is larger than the array: {n}"
            )
        halos.append(Halo(before, after, kind) if before or after else Halo())
    return tuple(halos)
