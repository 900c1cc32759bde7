"""Indices with arrays and masks read a copy, and write in place.

`expr.indexing` says what an index means, `ops.indexing` makes the nodes. What is done here needs values: the positions
where a mask is true are computed at the call, because shapes depend on their number (B-9).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray import config
from distarray.array import elements, window
from distarray.array.access import cast
from distarray.array.by_numpy import BASIC
from distarray.array.following import settled
from distarray.array.handle import AnyHandle, Handle, is_scalar
from distarray.array.pending import runs_at_once
from distarray.expr.bind import bind_get, bind_put, bind_tiles
from distarray.expr.expr import BLOCK_NBYTES, Expr
from distarray.expr.indexing import Advanced, Index, is_mask
from distarray.kernels.masks import where_true
from distarray.ops.indexing import NONZERO, Mode, get_item, positions_of, put_item, put_mask
from distarray.ops.marks import chosen, counts_of
from distarray.runtime import observations
from distarray.sharding.sharding import Sharding
from distarray.types import Casting, HostArray, Shape


def with_integers(index: Index, ndim: int, *, computes: bool) -> Index:
    """Return an index with integers in the places of computed ones that numpy has as scalars, if it holds no arrays.

    What is seen with axes is a view then, as in numpy; which element something else is may stay deferred.

    Parameters
    ----------
    ndim
        Axes of the array that is indexed.
    computes
        Whether those that are not here are computed for a view.
    """
    items = index if type(index) is tuple else (index,)
    found: list[Any] = []
    waits = False
    for item in items:
        if type(item) not in BASIC:
            if not _is_integer(item):
                return index
            block = item._ready()
            waits = waits or block is None
            item = item if block is None else int(block)
        found.append(item)
    if waits:
        has_axes = len(items) < ndim or any(type(item) is not int for item in items if type(item) in BASIC)
        if not (computes and has_axes):
            return index
        found = [item if type(item) in BASIC else item.__index__() for item in found]
    return tuple(found) if type(index) is tuple else found[0]


def _is_integer(value: Any) -> bool:
    """Return whether an item of an index is a number that numpy has as a scalar."""
    return isinstance(value, Handle) and value.dtype.kind in "iu" and is_scalar(value)


def positions(name: str, mask: Expr) -> tuple[HostArray, ...] | tuple[Expr, ...]:
    """Return where a mask is true, one array of positions for each axis, in C order. Computes the mask.

    Of a mask that is cut, or large, only the number of true elements in each part comes here; the positions stay
    deferred, and lie where the mask does. A small mask of one part gives host arrays.

    Raises
    ------
    ValueError
        If the option ``data-dependent`` says ``raise``.
    """
    _check(name)
    window.observe((mask,), is_read=True)
    if mask.stored.sharding.n_tiles == 1 and (mask.env.size == 1 or mask.nbytes <= BLOCK_NBYTES):
        return where_true(elements.fetch(mask))
    return _deferred_positions(mask)


def _check(name: str) -> None:
    if config.get("data-dependent") == "raise":
        raise ValueError(
            f"{name}: the shape of the result depends on data, and the option data-dependent is 'raise'; set it to "
            "'counts', or use where(mask, x, other)"
        )


def _deferred_positions(mask: Expr) -> tuple[Expr, ...]:
    """Return the positions of an evaluated mask, cut as its rows are: all members look for them."""
    sharding = mask.stored.sharding
    if sharding.n_tiles == 1 or any(parts > 1 for parts in sharding.parts[1:]):
        # C order runs through rows: bring them together first
        rows = tuple(reversed(sharding.mesh.names))
        mask = cast(mask, mask.dtype).with_pin(Sharding(sharding.mesh, (rows, *[()] * (mask.ndim - 1))))
        window.observe((mask,))
        sharding = mask.stored.sharding
    bounds = sharding.boundaries(mask.shape)[0]
    counts = counts_of(mask, bounds, sharding)
    window.observe((counts,))
    found = np.cumsum([0, *observations.fetch(counts)]).tolist()
    return bind_tiles(NONZERO, [(mask, bounds)], [((found[-1],), np.int64, found)] * mask.ndim, sharding)


def _resolved(x: Handle, index: Advanced) -> Advanced:
    """Return `index` with the nodes of its arrays, which live where `x` does; masks stay masks.

    Raises
    ------
    EnvironmentMismatchError
        If an index array lives elsewhere.
    """
    env = x._env
    arrays: list[tuple[int, Any]] = []
    for axis, array in index.arrays:
        enter = getattr(type(array), "__dx_node__", None)
        if enter is not None:
            node: Expr = enter(array)
            if node.env != env:
                node = settled(array, node, env, "index", "an index array")
            array = node
        elif not isinstance(array, np.ndarray):
            array = np.asarray(array)
        arrays.append((axis, array))
    return index.with_arrays(arrays)


def _without_masks(name: str, index: Advanced) -> Advanced:
    """Return `index` with positions in the places of its masks."""
    _held = [array.hold() for _, array in index.arrays if type(array) is Expr]  # nobody overwrites them
    return index.without_masks(lambda m: np.nonzero(m) if isinstance(m, np.ndarray) else positions(name, m))


def placed(x: Handle, index: Advanced) -> Advanced:
    """Return an index to write at: its arrays as positions, which are computed here where they may be wrong."""
    index = _resolved(x, index)
    arrays: list[tuple[int, Any]] = []
    for axis, array in index.arrays:
        is_here = type(array) is Expr and array.memo is not None and array.memo.on_client  # they are looked at anyway
        if type(array) is Expr and array.dtype.kind != "b" and not is_here:
            array = positions_of(array, index.affine.shape[axis], axis, array.env)
            if array.memo is None and runs_at_once(array):
                window.run(array)
        arrays.append((axis, array))
    return index.with_arrays(arrays)


def picked(x: AnyHandle, index: Advanced) -> AnyHandle:
    """Return ``x[index]`` where the index has arrays: a copy, as in numpy."""
    index = _resolved(x, index)
    shape = x.shape
    if len(index.arrays) == 1 and index.affine.is_identity(shape):
        ((axis, mask),) = index.arrays
        if not axis and is_mask(mask) and isinstance(mask, Expr) and mask.ndim and mask.shape == shape[: mask.ndim]:
            compressed = _compressed(x, mask)
            if compressed is not None:
                return x._on(compressed)
    index = _without_masks("getitem", index)
    return x._on(get_item(x.__dx_node__(), index))


def _compressed(x: Handle, mask: Expr) -> Expr | None:
    """Return the elements where a mask of the first axes is true, if both lie in rows, or both are one block: each tile
    picks its own.
    """
    _check("getitem")
    window.observe((mask,))  # where the elements are that it chooses
    sharding = mask.stored.sharding
    node = x.__dx_node__()
    lying = node.pin if node.memo is None else node.memo.sharding
    if any(s is not None and s.n_tiles != s.parts[0] for s in (sharding, lying)):
        return None
    if sharding.n_tiles == 1 and (lying is None or lying.n_tiles > 1):
        return None
    bounds = sharding.boundaries(mask.shape)[0]
    counts = counts_of(mask, bounds, sharding)
    _held = node.hold()
    window.observe((counts,))
    return chosen(mask, [node], observations.fetch(counts), bounds, sharding)[0]


def written(node: Expr, index: Advanced, value: Any, mode: Mode, casting: Casting = "same_kind") -> Expr:
    """Return the version after a write at an index with arrays; `casting` says how an update may cast back.

    A mask and a value that broadcasts over its true elements need no count; everything else is positions.
    """
    masks = [(axis, array) for axis, array in index.arrays if is_mask(array)]
    if mode == "set" and len(index.arrays) == len(masks) == 1:
        ((axis, mask),) = masks
        seen = index.affine.shape
        whole = index.affine.is_identity(node.shape)
        rest = seen[axis + len(mask.shape) :]
        if (not node.shape or (whole and mask.shape == node.shape)) and len(np.shape(value)) > 1:
            raise TypeError(
                "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input has "
                f"{len(np.shape(value))} dimensions"
            )
        if axis == 0 and mask.shape and _needs_no_count(value, rest):
            view = node if whole else bind_get(node, index.affine)
            new = put_mask(view, mask, value)
            return new if whole else bind_put(node, index.affine, new)
    return put_item(node, _without_masks("setitem", index), value, mode, casting)


def _needs_no_count(value: Any, rest: Shape) -> bool:
    shape: Shape = value.shape if hasattr(value, "shape") else np.shape(value)
    while len(shape) > len(rest) and shape[0] == 1:
        shape = shape[1:]
    return len(shape) <= len(rest)
