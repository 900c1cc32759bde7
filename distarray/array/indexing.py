"""Indices with arrays and masks: reading a copy, writing in place, and what depends on counts.

`expr.indexing` says what an index means, `ops.indexing` makes the nodes. What is done here needs values: the positions
where a mask is true are computed at the call, because shapes depend on their number (B-9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distarray import config
from distarray.arguments import normalize_axis
from distarray.array import elements, window
from distarray.array.base import cast
from distarray.array.following import settled
from distarray.array.views import as_distarray
from distarray.expr.bind import bind_get, bind_put, bind_tiles
from distarray.expr.expr import Expr, source
from distarray.expr.indexing import Advanced, nonzero_indices
from distarray.expr.side_by_side import side_by_side
from distarray.ops.indexing import NONZERO, Casting, Mode, get_item, put_item, put_mask
from distarray.ops.indexing import take as _take
from distarray.ops.joining import stack
from distarray.ops.marks import chosen, counts_of
from distarray.runtime import observations
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray, Shape

if TYPE_CHECKING:
    from distarray.array.array import DistArray

__all__ = ["argwhere", "compress", "extract", "flatnonzero", "nonzero", "picked", "positions", "resolved", "written"]


def positions(name: str, mask: Expr) -> tuple[HostArray, ...] | tuple[Expr, ...]:
    """Return where a mask is true, one array of positions for each axis, in C order. Computes the mask.

    Of a mask that is cut only the number of true elements in each part comes here; the positions stay deferred, and lie
    where the mask does. A mask of one part gives host arrays.

    Raises
    ------
    ValueError
        If the option ``data-dependent`` says ``raise``.
    """
    _check(name)
    window.observe((mask,))
    assert mask.memo is not None
    if mask.memo.sharding.n_tiles == 1:
        return np.nonzero(elements.fetch(mask))
    return _deferred_positions(mask)


def _check(name: str) -> None:
    if config.get("data-dependent") == "raise":
        raise ValueError(
            f"{name}: the shape of the result depends on data, and the option data-dependent is 'raise'; set it to "
            "'counts', or use where(mask, x, other)"
        )


def _deferred_positions(mask: Expr) -> tuple[Expr, ...]:
    """Return the positions of an evaluated mask of several parts, cut as its rows are."""
    assert mask.memo is not None
    sharding = mask.memo.sharding
    if any(parts > 1 for parts in sharding.parts[1:]):
        # C order runs through rows: bring them together first
        rows = tuple(reversed(sharding.mesh.names))
        mask = cast(mask, mask.dtype).with_pin(Sharding(sharding.mesh, (rows, *[()] * (mask.ndim - 1))))
        window.observe((mask,))
        assert mask.memo is not None
        sharding = mask.memo.sharding
    bounds = sharding.boundaries(mask.shape)[0]
    counts = counts_of(mask, bounds, sharding)
    window.observe((counts,))
    found = np.cumsum([0, *observations.fetch(counts)]).tolist()
    return bind_tiles(NONZERO, [(mask, bounds)], [((found[-1],), np.int64, found)] * mask.ndim, sharding)


def _is_mask(array: Any) -> bool:
    return getattr(array.dtype, "kind", None) == "b"


def resolved(x: DistArray, index: Advanced) -> Advanced:
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
    arrays: list[tuple[int, Any]] = []
    for axis, array in nonzero_indices(index).arrays:
        if _is_mask(array):
            arrays += [(axis + i, where) for i, where in enumerate(positions(name, array))]
        else:
            arrays.append((axis, array))
    return index.with_arrays(arrays)


def picked(x: DistArray, index: Advanced) -> DistArray:
    """Return ``x[index]`` where the index has arrays: a copy, as in numpy."""
    node = x.__dx_node__()
    if len(index.arrays) == 1 and index.affine.is_identity(node.shape):
        ((axis, mask),) = index.arrays
        if (
            not axis
            and _is_mask(mask)
            and isinstance(mask, Expr)
            and mask.ndim
            and mask.shape == node.shape[: mask.ndim]
        ):
            compressed = _compressed(node, mask)
            if compressed is not None:
                return x._on(compressed)
    return x._on(get_item(node, _without_masks("getitem", index)))


def _compressed(node: Expr, mask: Expr) -> Expr | None:
    """Return the elements where a mask of the first axes is true, if both lie in rows: each tile picks its own."""
    _check("getitem")
    window.observe((mask,))
    assert mask.memo is not None
    sharding = mask.memo.sharding
    lying = node.pin if node.memo is None else node.memo.sharding
    if sharding.n_tiles == 1 or any(s is not None and s.n_tiles != s.parts[0] for s in (sharding, lying)):
        return None
    bounds = sharding.boundaries(mask.shape)[0]
    counts = counts_of(mask, bounds, sharding)
    window.observe((counts,))
    return chosen(mask, [node], observations.fetch(counts), bounds, sharding)[0]


def written(node: Expr, index: Advanced, value: Any, mode: Mode, casting: Casting = "same_kind") -> Expr:
    """Return the version after a write at an index with arrays; `casting` says how an update may cast back.

    A mask and a value that broadcasts over its true elements need no count; everything else is positions.
    """
    masks = [(axis, array) for axis, array in index.arrays if _is_mask(array)]
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


# ------------------------------------------------------------------------------------- functions with counts


def _true(x: Any) -> tuple[DistArray, Expr]:
    own = as_distarray(x)
    node = own.__dx_node__()
    return own, node if node.dtype == bool else cast(node, np.dtype(bool))


def _boxed(x: DistArray, where: HostArray | Expr) -> DistArray:
    return x._on(where if isinstance(where, Expr) else source(where, x._env))


def nonzero(x: Any, /) -> tuple[DistArray, ...]:
    """Return the positions of the elements that are not zero, one array per axis. Computes their number."""
    x, mask = _true(x)
    if not mask.shape:
        raise ValueError(
            "Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead. "
            "If the context of this error is of the form `arr[nonzero(cond)]`, just use `arr[cond]`."
        )
    return tuple(_boxed(x, where) for where in positions("nonzero", mask))


def argwhere(a: Any, /) -> DistArray:
    """Return the positions of the elements that are not zero, one per row."""
    x, mask = _true(a)
    if not mask.shape:
        return _boxed(x, _rows_of_nothing(mask))
    found = positions("argwhere", mask)
    if isinstance(found[0], Expr):
        rows: DistArray = stack([x._on(node) for node in found], axis=-1)
        return rows
    return _boxed(x, np.stack(found, axis=-1))


def _rows_of_nothing(mask: Expr) -> HostArray:
    return np.argwhere(elements.fetch(mask))


def flatnonzero(a: Any, /) -> DistArray:
    """Return the positions in the flattened array of the elements that are not zero."""
    return nonzero(as_distarray(a).ravel())[0]


@side_by_side
def compress(condition: Any, a: Any, /, axis: int | None = None) -> DistArray:
    """Return the elements of `a` along `axis` where `condition` is true; of the flattened array by default."""
    x = as_distarray(a)
    if axis is None:
        x, axis = x.ravel(), 0
    axis = normalize_axis(axis, x.ndim)
    mask = as_distarray(condition)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    (at,) = positions("compress", _true(mask)[1])
    return _take(x, at if isinstance(at, np.ndarray) else x._on(at), axis=axis)  # type: ignore[no-any-return]  # boxed


@side_by_side
def extract(condition: Any, arr: Any, /) -> DistArray:
    """Return the elements of `arr` where `condition` is true, flattened."""
    return compress(as_distarray(condition).ravel(), arr)
