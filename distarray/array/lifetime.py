"""The end of storage, and storage of one's own: ``delete()``, and blocks that are handed out to be written."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from distarray.array import window
from distarray.array.base import Base, cast
from distarray.execution import evaluate as evaluation
from distarray.expr.expr import Expr, Stored

__all__ = ["delete", "own_storage"]


def _is_shared(base: Base) -> bool:
    """Whether the version of `base` is another base's version too: copies share until one of them is written."""
    # Every base on a node holds its one Slot. One reference is this base's, one the argument's of getrefcount.
    return sys.getrefcount(base.slot) > 2


def delete(base: Base) -> None:
    """Free the blocks of `base` now; whatever is pending is computed first, since it may read them."""
    version = base.current
    window.flush()
    shared = _is_shared(base)
    base.drop()
    memo = version.memo
    if memo is not None and not shared and not memo.exported:
        # Futures and arrays are freed when nothing refers to them; views of the base still refer to the node.
        memo.blocks = ()


def own_storage(base: Base, *, placed: bool = True) -> Expr:
    """The version of `base`, computed, with blocks that no other version shares; so they may be handed out.

    Parameters
    ----------
    placed
        Whether host data go to the members that are to hold their parts.
    """
    version = base.current
    window.observe((version,))
    if placed:
        from distarray.execution import planned

        planned.place(version)
    memo = version.memo
    assert memo is not None
    if evaluation.is_cluster(version.env) and not memo.on_client:
        return version
    if not _is_shared(base) and not _are_borrowed(memo):
        return version
    fresh = cast(version, version.dtype)
    fresh.settle(Stored(memo.sharding, [_copied(block) for block in memo.blocks], on_client=memo.on_client))
    base.advance(fresh)
    return fresh


def _are_borrowed(memo: Stored) -> bool:
    """Whether a block is memory that the user gave, or that is read-only."""
    return any(isinstance(b, np.ndarray) and not b.flags.writeable for b in memo.blocks)


def _copied(block: Any) -> Any:  # of any backend
    return block.copy() if hasattr(block, "copy") else block.__array_namespace__().asarray(block, copy=True)
