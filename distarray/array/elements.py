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
from distarray.execution import evaluate as evaluation
from distarray.execution.retention import streams
from distarray.expr.bind import bind_get
from distarray.expr.expr import GET, Expr
from distarray.expr.lens import Affine
from distarray.types import HostArray

__all__ = ["fetch", "item"]

#: Bytes of the rows that are fetched at once.
CACHED_NBYTES = 1 << 20


class _Rows:
    """Host copy of some rows of one version."""

    __slots__ = ("start", "stop", "values")

    def __init__(self) -> None:
        self.start = self.stop = 0
        self.values: HostArray | None = None


_cached: weakref.WeakKeyDictionary[Expr, _Rows] = weakref.WeakKeyDictionary()


def fetch(node: Expr) -> HostArray:
    """Compute a node and bring it here; the caller owns the array."""
    if node.memo is None:
        window.observe((node,))
    return evaluation.fetch(node)


def item(node: Expr) -> HostArray:
    """The value of a node of one element, of its shape; not to be written."""
    if node.memo is None:
        if node.op is GET:
            found = _from_rows(node)
            if found is not None:
                return found
        window.observe((node,))
    memo = node.memo
    assert memo is not None
    if memo.on_client and type(memo.blocks[0]) is np.ndarray:
        block: HostArray = memo.blocks[0]
        return block
    return evaluation.fetch(node)


def _from_rows(node: Expr) -> HostArray | None:
    """An element of a version that others of its elements were read of."""
    source = node.operands[0]
    assert type(source) is Expr
    lens: Affine = node.runtime
    memo = source.memo
    if memo is not None and memo.on_client and type(memo.blocks[0]) is np.ndarray:
        return lens.read(memo.blocks[0])  # type: ignore[no-any-return]  # an array of one element
    rows = _cached.get(source)
    if rows is None:
        # The first read of a version fetches its element only: it may be the only one.
        _cached[source] = _Rows()
        return None
    if memo is not None and type(memo.blocks[0]) is np.ndarray and not evaluation.is_cluster(source.env):
        return _from_block(source, lens)
    box = lens.source_box(tuple(map(range, lens.shape)))
    row = box[0].start if box else 0
    if rows.values is None or not rows.start <= row < rows.stop:
        _fill(rows, source, row)
    assert rows.values is not None
    frame = (range(rows.start, rows.stop), *map(range, source.shape[1:])) if box else ()
    return lens.restricted(tuple(map(range, lens.shape)), frame).read(rows.values)  # type: ignore[no-any-return]


def _from_block(source: Expr, lens: Affine) -> HostArray:
    """An element of blocks in this process: no copy of rows, which a write to ``x.local(m)`` would not reach."""
    memo = source.memo
    assert memo is not None
    boundaries = memo.sharding.boundaries(source.shape)
    ((tile, _, box),) = lens.fragments(tuple(map(range, lens.shape)), boundaries)
    frame = tuple([range(b[t], b[t + 1]) for b, t in zip(boundaries, tile, strict=True)])
    number = 0
    for t, parts in zip(tile, memo.sharding.parts, strict=True):
        number = number * parts + t
    return lens.restricted(box, frame).read(memo.blocks[number])  # type: ignore[no-any-return]


def _fill(rows: _Rows, source: Expr, row: int) -> None:
    """Fetch as many rows from `row` on as the cap allows; the source itself is computed and kept."""
    if not source.shape:
        rows.values = fetch(source)
        return
    n = source.shape[0]
    per_row = max(source.nbytes // n, 1)
    if source.nbytes <= CACHED_NBYTES:
        rows.start, rows.stop = 0, n
        rows.values = fetch(source)
        return
    stop = min(n, row + max(1, CACHED_NBYTES // per_row))
    if source.memo is None and not streams(source):
        window.observe((source,))
    terms: Sequence[Any] = [(0, row, 1), *((a, 0, 1) for a in range(1, source.ndim))]
    part = bind_get(source, Affine((stop - row, *source.shape[1:]), tuple(terms)))
    rows.values, rows.start, rows.stop = fetch(part), row, stop
