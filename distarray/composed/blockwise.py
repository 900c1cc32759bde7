"""User functions on blocks, in Dask's spelling: ``map_blocks`` and ``blockwise``.

A user function is an operation like any other: it has a ShardingRule, made from the shapes of its operands, and is
called once per tile of the result with the blocks of its operands there; the planner cuts. Where what it does depends
on the cut (it asks for its place, or says how long its blocks are), the tiles are those of the largest operand as it
lies. It is never tried out to learn what it returns, unless the user says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from distarray.arguments import integers, mapping, normalize_axes, sequence, shown
from distarray.composed.grid import grid_over, ranges_of
from distarray.composed.user_function import (
    MAP_BLOCKS,
    MAP_WINDOWS,
    InformedFunction,
    UserFunction,
    arguments,
    dtype_of,
    examples,
    has_keyword,
    is_array,
)
from distarray.errors import NotSupportedError
from distarray.expr.bind import Operands, bind, bind_windows
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr
from distarray.expr.tiles import Bounds, Ranges, Windows
from distarray.types import DTypeLike


def map_blocks(
    func: Callable[..., Any],
    *args: Any,
    dtype: DTypeLike = None,
    chunks: Any = None,
    drop_axis: int | Sequence[int] | None = None,
    new_axis: int | Sequence[int] | None = None,
    name: str | None = None,
    infer: bool = False,
    meta: Any = None,
    enforce_ndim: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> Any:
    """Call a function on the blocks of arrays that broadcast together.

    Parameters
    ----------
    func
        Takes one block for each array of `args`, other arguments as they are. Its result must have the shape of the
        broadcast blocks, but for `drop_axis`, `new_axis` and `chunks`. It must work for blocks of any size: the planner
        cuts. What it returned is kept as it is, so it may not write to that later. If it has a parameter ``block_id``
        it is given the index of the block of the result, for ``block_info`` Dask's dictionary of shapes and places;
        then the blocks are the tiles of the largest array as it lies.
    args
        Arrays and other arguments.
    dtype
        Of the result. Needed, since the function is not tried out to learn it, unless by `infer`.
    chunks
        Extents of the new axes: an int or one for each; 1 by default. Or, with an entry for each axis of the result,
        the extents of its blocks as Dask takes them: an int for all blocks along the axis, or a tuple of one for each.
    drop_axis, new_axis
        Axes of the broadcast operands that the result lacks (they are never cut), and axes of the result that are new.
    infer
        Call the function once, on blocks of one element, to learn the dtype.
    name, meta, enforce_ndim, token
        Accepted for Dask's sake, and not used.
    kwargs
        Passed to the function.

    Returns
    -------
    DistArray
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    TypeError
        If nothing says the dtype, or no argument is an array.
    ValueError
        If the function gives a block of another shape than it should.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.map_blocks(lambda block: block * 2, dx.arange(3), dtype="int64").tolist()
    [0, 2, 4]
    >>> x = dx.arange(4, sharding=("T",), team=dx.Team((2,), ("T",)))
    >>> dx.map_blocks(lambda block, block_id: block + 10 * block_id[0], x, dtype="int64").tolist()
    [0, 1, 12, 13]
    >>> dx.map_blocks(lambda block: block[:1], x, dtype="int64", chunks=((1, 1),)).tolist()
    [0, 2]
    """
    function, nodes, operands = arguments("map_blocks", func, args, kwargs)
    shape = broadcast_shapes(*[n.shape for n in nodes])
    axes = ResultAxes(shape, drop_axis, new_axis, chunks)
    terms: list[tuple[Hashable, ...]] = [tuple(range(len(shape) - n.ndim, len(shape))) for n in nodes]
    result: tuple[Hashable, ...] = tuple([("new", i) if a is None else a for i, a in enumerate(axes.of)])
    named = _Indices(result, terms, [n.shape for n in nodes], {("new", i): n for i, n in axes.new.items()})
    is_informed = has_keyword(func, "block_id") or has_keyword(func, "block_info")
    if is_informed or axes.block_extents is not None:
        places = tuple([i for i, a in enumerate(args) if is_array(a)])
        adjust = dict(zip(result, axes.block_extents or (), strict=False))
        return _on_grid("map_blocks", function, nodes, places, named, adjust, operands, dtype, infer)
    return _on_any_blocks("map_blocks", function, nodes, named, operands, dtype, infer)


class ResultAxes:
    """ResultAxes say which axes the result of a function of blocks has.

    Attributes
    ----------
    of
        For each axis of the result the axis of the broadcast operands; None if it is new.
    new
        Extents of the new axes.
    block_extents
        For each axis of the result what Dask's ``chunks`` says; None if it says nothing of that kind.
    """

    def __init__(self, shape: tuple[int, ...], drop_axis: Any, new_axis: Any, chunks: Any) -> None:
        self.dropped = () if drop_axis is None else normalize_axes(drop_axis, len(shape), "drop_axis")
        given = () if new_axis is None else integers(new_axis, "new_axis")
        ndim = len(shape) - len(self.dropped) + len(given)
        added = normalize_axes(given, ndim, "new_axis")
        kept = iter([a for a in range(len(shape)) if a not in self.dropped])
        self.of: list[int | None] = [None if i in added else next(kept) for i in range(ndim)]
        self.block_extents: tuple[Any, ...] | None = None
        self.new = dict.fromkeys(added, 1)
        if chunks is None:
            return
        extents = (chunks,) * len(added) if isinstance(chunks, int) else sequence(chunks, "chunks", "extents")
        if len(extents) == len(added) and all(isinstance(n, int) for n in extents):
            self.new = dict(zip(added, extents, strict=True))
        elif len(extents) == ndim:
            self.block_extents = extents
        else:
            raise ValueError(
                f"map_blocks: chunks={chunks!r} gives {len(extents)} extents for {len(added)} new axes, or {ndim} axes "
                "of the result"
            )


def block_bounds(extents: Any, known: Bounds, axis: int) -> Bounds:
    """Return the boundaries of blocks of these extents, an int for all or one for each, where tiles have the boundaries
    `known`.

    Raises
    ------
    ValueError
        If there are not as many extents as blocks.
    """
    tiles = list(itertools.pairwise(known))
    # Tiles without elements are no blocks, unless there are no others.
    some = [b > a for a, b in tiles] if known[-1] else [True] + [False] * (len(tiles) - 1)
    sizes = [extents] * sum(some) if isinstance(extents, int) else list(extents)
    if len(sizes) != sum(some):
        raise ValueError(
            f"chunks: axis {axis} has {sum(some)} blocks, but {tuple(sizes)} are the extents of {len(sizes)}"
        )
    given = iter(sizes)
    return tuple(itertools.accumulate([next(given) if is_block else 0 for is_block in some], initial=0))


# ------------------------------------------------------------------------------------------------- blockwise


def blockwise(
    func: Callable[..., Any],
    out_ind: Sequence[Hashable],
    *args: Any,
    name: str | None = None,
    token: Any = None,
    dtype: DTypeLike = None,
    adjust_chunks: Mapping[Hashable, Any] | None = None,
    new_axes: Mapping[Hashable, int] | None = None,
    align_arrays: bool = True,
    concatenate: bool | None = True,
    meta: Any = None,
    infer: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function on the blocks of arrays whose axes are named by indices, as in ``einsum``.

    Parameters
    ----------
    func
        Takes one block for each array, other arguments as they are.
    out_ind
        The index of each axis of the result.
    *args
        Pairs of an array and its indices; ``(value, None)`` passes a value as it is. Axes of one index have one extent,
        or extent 1.
    dtype
        Of the result. Needed, since the function is not tried out to learn it, unless by `infer`.
    adjust_chunks
        For an index of the result how the function changes the extents of blocks along it: the new extent, one for
        each block, or a function of the old one. The blocks are then the tiles of the largest array as it lies.
    new_axes
        Extents of the indices that only the result has.
    concatenate
        Blocks are whole along indices that the result lacks. Dask's lists of blocks (None or False) do not exist here.
    align_arrays, name, token, meta
        Accepted for Dask's sake: the planner brings blocks together.
    infer
        Call the function once, on blocks of one element, to learn the dtype.

    Returns
    -------
    DistArray
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    ValueError
        If indices do not fit the arrays, or lists of blocks are asked for.

    Examples
    --------
    >>> import distarray as dx
    >>> x, y = dx.arange(3.0), dx.asarray([1.0, 10.0])
    >>> dx.blockwise(lambda a, b: a[:, None] * b, "ij", x, "i", y, "j", dtype="f8").tolist()
    [[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]]
    >>> dx.blockwise(lambda a, b: a @ b, "", x, "k", x, "k", dtype="f8").item()
    5.0
    """
    if len(args) % 2:
        raise ValueError("blockwise: the arguments are pairs of an array, or a value, and its indices, or None")
    values, indices = args[::2], args[1::2]
    result = _index_names(out_ind, "out_ind")
    if any(is_array(v) and i is None for v, i in zip(values, indices)):
        raise ValueError("blockwise: every array needs its indices, and None is given for one")
    function, nodes, operands = arguments("blockwise", func, values, kwargs)
    if any(not is_array(v) and i is not None for v, i in zip(values, indices)):
        raise TypeError("blockwise: indices are given for a value that is no DistArray; make it one by dx.asarray")
    terms = [_index_names(i, "the indices of an array") for v, i in zip(values, indices) if is_array(v)]
    extents = mapping(new_axes, "new_axes", "indices to extents")
    adjust = mapping(adjust_chunks, "adjust_chunks", "indices to extents of blocks")
    named = _Indices(result, terms, [n.shape for n in nodes], extents)
    if named.contracted and not concatenate:
        raise ValueError(
            f"blockwise: the result lacks the indices {named.contracted}; blocks are whole along them, so say "
            "concatenate=True, or use dx.reduction for partial results"
        )
    if not adjust:
        return _on_any_blocks("blockwise", function, nodes, named, operands, dtype, infer)
    return _on_grid("blockwise", function, nodes, (), named, adjust, operands, dtype, infer)


def _index_names(given: Any, name: str) -> tuple[Hashable, ...]:
    """Return the indices that a text or a sequence names."""
    if not isinstance(given, str | list | tuple):
        raise TypeError(f"{name}={shown(given)} must be a text or a sequence of indices, not {type(given).__name__}")
    return tuple(given)


class _Indices:
    """_Indices name the axes of the arrays and of the result of a function of blocks, checked."""

    def __init__(
        self,
        result: tuple[Hashable, ...],
        terms: list[tuple[Hashable, ...]],
        shapes: list[tuple[int, ...]],
        new: dict[Hashable, int],
    ) -> None:
        self.result, self.terms, self.shapes = result, terms, shapes
        self.extents: dict[Hashable, int] = {}
        for term, shape in zip(terms, shapes, strict=True):
            if len(term) != len(shape):
                raise ValueError(f"blockwise: {term} does not name the axes of an array of shape {shape}")
            if len(set(term)) != len(term):
                raise ValueError(f"blockwise: {term} names an index twice; take the diagonal first")
            for index, n in zip(term, shape, strict=True):
                known = self.extents.get(index, 1)
                if known != n and known != 1 and n != 1:
                    raise ValueError(f"blockwise: index {index!r} has the extents {known} and {n}")
                self.extents[index] = n if known == 1 else known
        self.new: dict[Hashable, int] = {}
        for index in result:
            if index in self.extents:
                continue
            if index not in new:
                raise ValueError(f"blockwise: index {index!r} is in no array; give its extent in new_axes")
            n = new[index]
            if not isinstance(n, int):
                raise NotSupportedError(
                    f"blockwise: new_axes gives index {index!r} several blocks, {n}; give the whole extent, an int"
                )
            self.new[index] = n
        if len(set(result)) != len(result):
            raise ValueError(f"blockwise: the result {result} names an index twice")
        self.contracted = tuple([i for i in self.extents if i not in result])

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Return the shape of the result where blocks keep their extents."""
        return tuple([self.new[i] if i in self.new else self.extents[i] for i in self.result])

    def rule(self) -> str:
        """Return the ShardingRule that a call has."""
        loop = {index: f"i{k}" for k, index in enumerate([*self.extents, *self.new])}
        terms = [
            " ".join("1" if n != self.extents[i] else loop[i] for i, n in zip(term, shape, strict=True)) or "()"
            for term, shape in zip(self.terms, self.shapes, strict=True)
        ]
        clauses = [f"{loop[i]}: whole" for i in self.contracted]
        # An index that only broadcasts is no loop of an operand.
        clauses += [f"{loop[i]}: new({n})" for i, n in self.new.items()]
        tail = " | " + ", ".join(clauses) if clauses else ""
        return ", ".join(terms) + " -> " + " ".join(loop[i] for i in self.result) + tail


def _on_any_blocks(
    name: str,
    function: UserFunction,
    nodes: Sequence[Expr],
    named: _Indices,
    operands: Operands,
    dtype: DTypeLike,
    infer: bool,
) -> Any:  # boxed as the operands are
    """Return a function of blocks that the planner cuts."""
    found = dtype_of(name, dtype, infer, lambda: function(*examples(nodes)))
    return bind(MAP_BLOCKS, (), named.result_shape, found, (named.rule(), found.str), (function,), operands)


def _on_grid(
    name: str,
    function: UserFunction,
    nodes: Sequence[Expr],
    places: tuple[int, ...],
    named: _Indices,
    adjust: Mapping[Hashable, Any],
    operands: Operands,
    dtype: DTypeLike,
    infer: bool,
) -> Any:  # boxed as the operands are
    """Return a function of the tiles of the largest operand.

    Parameters
    ----------
    places
        Of the arrays among the arguments, for a function that asks.
    adjust
        By index what `block_bounds` takes, or a function of the old extents, where blocks get others.
    """
    order = list(named.extents)
    number = {index: k for k, index in enumerate(order)}
    axes = [[number[i] for i in term] for term in named.terms]
    grid = grid_over(nodes, axes, [named.extents[i] for i in order]).uncut([number[i] for i in named.contracted])
    loop_of = {index: k for k, index in enumerate(named.result)}

    def read(index: Hashable, n: int) -> tuple[int, Ranges] | None:
        is_whole = index not in loop_of or n != named.extents[index]
        return None if is_whole else (loop_of[index], ranges_of(grid.bounds[number[index]]))

    reads = [tuple(map(read, term, shape)) for term, shape in zip(named.terms, named.shapes, strict=True)]
    bounds = []
    for axis, index in enumerate(named.result):
        known = (0, named.new[index]) if index in named.new else grid.bounds[number[index]]
        if index in adjust:
            change = adjust[index]
            tiles = [b - a for a, b in itertools.pairwise(known) if b > a] or [0]
            known = block_bounds([change(n) for n in tiles] if callable(change) else change, known, axis)
        bounds.append(known)
    windows = Windows(tuple(reads), tuple(bounds))
    shapes = tuple(named.shapes) if places else ()

    def example() -> Any:
        informed = InformedFunction(function, places, shapes, windows, np.dtype(np.float64))
        return function(*examples(nodes), **informed.information((0,) * len(windows.grid)))

    found = dtype_of(name, dtype, infer, example)
    made = windows._replace(late=(InformedFunction(function, places, shapes, windows, found),))
    cut = grid.cut([number.get(i) for i in named.result])
    return operands.box(bind_windows(MAP_WINDOWS, nodes, made, found, cut))
