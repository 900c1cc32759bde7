"""The functions that say where elements are not zero, or pick those: the shape of what they return depends on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.arguments import refuse_loose_axis
from distarray.array import elements
from distarray.array.access import cast
from distarray.array.array import DistArray
from distarray.array.indexing import positions
from distarray.array.out import into_copied
from distarray.composed.views import all_beside, along, as_distarray
from distarray.expr.expr import Expr, source
from distarray.expr.side_by_side import side_by_side
from distarray.ops.families import by_numpy
from distarray.ops.indexing import take
from distarray.ops.joining import stack
from distarray.types import HostArray


def _true(x: Any) -> tuple[DistArray, Expr]:
    own = as_distarray(x)
    node = own.__dx_node__()
    return own, node if node.dtype == bool else cast(node, np.dtype(bool))


def _boxed(x: DistArray, where: HostArray | Expr) -> DistArray:
    return x._on(where if isinstance(where, Expr) else source(where, x._env))


@by_numpy(np.nonzero)
def nonzero(x: Any, /) -> tuple[DistArray, ...]:
    """Return the positions of the elements that are not zero, one array per axis.

    Their number is computed at the call.
    """
    x, mask = _true(x)
    if not mask.shape:
        raise ValueError(
            "Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead. "
            "If the context of this error is of the form `arr[nonzero(cond)]`, just use `arr[cond]`."
        )
    return tuple(_boxed(x, where) for where in positions("nonzero", mask))


@by_numpy(np.argwhere)
def argwhere(a: Any, /) -> DistArray:
    """Return the positions of the elements that are not zero, one per row."""
    x, mask = _true(a)
    if not mask.shape:
        return _boxed(x, np.argwhere(elements.fetch(mask)))
    found = positions("argwhere", mask)
    if isinstance(found[0], Expr):
        return stack([x._on(node) for node in found], axis=-1)
    return _boxed(x, np.stack(found, axis=-1))


@by_numpy(np.flatnonzero)
def flatnonzero(a: Any, /) -> DistArray:
    """Return the positions in the flattened array of the elements that are not zero."""
    return nonzero(as_distarray(a).ravel())[0]


@by_numpy(np.compress)
@side_by_side
def compress(condition: Any, a: Any, /, axis: int | None = None, out: Any = None) -> DistArray:
    """Return the elements of `a` along `axis` where `condition` is true; of the flattened array by default."""
    x, mask = all_beside(a, condition)
    refuse_loose_axis(axis)
    x, axis = along(x, axis)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    (at,) = positions("compress", _true(mask)[1])
    return into_copied(out, take(x, at if isinstance(at, np.ndarray) else x._on(at), axis=axis))


@by_numpy(np.extract)
@side_by_side
def extract(condition: Any, arr: Any, /) -> DistArray:
    """Return the elements of `arr` where `condition` is true, flattened."""
    return compress(all_beside(condition, arr)[0].ravel(), arr)
