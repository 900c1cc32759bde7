"""Reading values into this process: whole arrays, and single elements in loops.

``for i in range(n): total += float(x[i])`` asks for one element at a time. The second such read of one version fetches
the rows around the element, up to a byte cap, and later reads are served from them: no round trip per element.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import window
from distarray.expr.bind import bind_get
from distarray.expr.expr import GET, Expr, Scalar
from distarray.expr.lens import Affine
from distarray.runtime import observations
from distarray.runtime.retention import streams
from distarray.sharding.boxes import tile_box
from distarray.types import HostArray

#: Bytes of the rows that are fetched at once.
CACHED_NBYTES = 1 << 20
#: Rows that are longer are not fetched for the sake of one element.
ROW_NBYTES = 64 << 20
#: Bytes that are brought here without asking whether there is room for them.
FETCHED = 64 << 20


#: A host copy of some rows of one version: (first, last + 1, values); None where one element was read.
_cached: weakref.WeakKeyDictionary[Expr, tuple[int, int, HostArray] | None] = weakref.WeakKeyDictionary()


def fetch(node: Expr) -> HostArray:
    """Compute a node and bring it here; the caller owns the array."""
    if node.nbytes > FETCHED:
        check_room(node)
    if node.memo is None:
        window.observe((node,), is_read=True)
    return observations.fetch(node)


def fetch_into(node: Expr, out: HostArray) -> None:
    """Compute a node and write it into a host array to which it broadcasts, tile by tile; it casts to anything.

    Nothing is written before all of it is computed, from what operands hold now that share memory with `out`.
    """
    if node.memo is None:
        window.observe((node,), is_read=True)
    if node.shape == out.shape:
        observations.fetch_into(node, out)
    else:
        np.copyto(out, observations.fetch(node), casting="unsafe")


def check_room(node: Expr) -> None:
    """Check that an array fits into this process; see `distarray.runtime.budget.check_fetch`."""
    from distarray.runtime.budget import check_fetch  # not loaded by those whose arrays are small

    check_fetch(node)


def item(node: Expr) -> HostArray:
    """Return the value of a node of one element, of its shape; not to be written."""
    pending = node.unsettled()
    if pending is not None:
        if node.op is GET:
            (source,), lens = pending
            found = _from_rows(source, lens)
            if found is not None:
                return found
        window.observe((node,), is_read=True)
    memo = node.stored
    if memo.on_client and type(memo.blocks[0]) is np.ndarray:
        block: HostArray = memo.blocks[0]
        return block
    return observations.fetch(node)


def _from_rows(source: Expr | Scalar, lens: Affine) -> HostArray | None:
    """Return an element of a version that others of its elements were read of."""
    assert type(source) is Expr
    memo = source.memo
    if memo is not None and (memo.home_copy is not None or (memo.on_client and type(memo.here) is np.ndarray)):
        return lens.read(memo.here)  # type: ignore[no-any-return]  # an array of one element
    if source not in _cached:
        # The first read of a version fetches its element only: it may be the only one.
        _cached[source] = None
        return None
    if memo is not None and not source.env.is_cluster and type(memo.blocks[0]) is np.ndarray:
        return _from_block(source, lens)
    if source.shape and source.nbytes > ROW_NBYTES * source.shape[0]:
        return None
    box = lens.source_box(tuple(map(range, lens.shape)))
    row = box[0].start if box else 0
    held = _cached.get(source)
    if held is None or not held[0] <= row < held[1]:
        held = _cached[source] = _filled(source, row)
    start, stop, values = held
    frame = (range(start, stop), *map(range, source.shape[1:])) if box else ()
    return lens.restricted(tuple(map(range, lens.shape)), frame).read(values)  # type: ignore[no-any-return]


def _from_block(source: Expr, lens: Affine) -> HostArray:
    """Return an element of blocks in this process: no copy of rows, which a write to ``x.local(m)`` would not reach."""
    memo = source.stored
    boundaries = memo.sharding.boundaries(source.shape)
    ((tile, _, box),) = lens.fragments(tuple(map(range, lens.shape)), boundaries)
    frame = tile_box(boundaries, tile)
    return lens.restricted(box, frame).read(memo.blocks[memo.sharding.number(tile)])  # type: ignore[no-any-return]


def _filled(source: Expr, row: int) -> tuple[int, int, HostArray]:
    """Return as many rows from `row` on as the cap allows, fetched; the source itself is computed and kept."""
    n = source.shape[0] if source.shape else 1
    if not source.shape or source.nbytes <= CACHED_NBYTES:
        return 0, n, fetch(source)
    per_row = max(source.nbytes // n, 1)
    stop = min(n, row + max(1, CACHED_NBYTES // per_row))
    if source.memo is None and not streams(source):
        window.observe((source,))
    terms: Sequence[Any] = [(0, row, 1), *((a, 0, 1) for a in range(1, source.ndim))]
    part = bind_get(source, Affine((stop - row, *source.shape[1:]), tuple(terms)))
    return row, stop, fetch(part)
