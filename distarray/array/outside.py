"""Memory that somebody outside may write, and an array has: what is made of it is made at once, in memory of its own.

What was handed out to be written (`distarray.kernels.loans`) stays the array's: what is written to the array later is
written there, as numpy does it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import elements, versions, window
from distarray.array.access import copied
from distarray.array.versions import Base
from distarray.expr.expr import PUT, Expr
from distarray.forks import free_in_child
from distarray.kernels import loans

#: Held while it is computed what is written to memory that stays: each write reads what the one before has written.
_lock = free_in_child(threading.RLock())


def apart(node: Expr) -> Expr:
    """Return a node for a new base, or version: computed now if it reads what others may write, and in memory of its
    own.
    """
    if node.memo is None:
        if node.op.repeatable or not _reads_what_others_write(node):
            return node
        window.run(node)
    return copied(node) if is_written_outside(node) else node


def _reads_what_others_write(node: Expr) -> bool:
    """Return whether a new node reads memory that somebody outside may write, which waits for nobody.

    What is pending and has a handle was asked when it was new: nothing behind it has to be looked at.
    """
    seen: set[int] = set()
    waiting = list(node.nodes())
    while waiting:
        operand = waiting.pop()
        if id(operand) in seen:
            continue
        seen.add(id(operand))
        if operand.memo is None:
            if not operand.is_live:
                waiting += operand.nodes()
        elif is_written_outside(operand):
            return True
    return False


def is_written_outside(node: Expr) -> bool:
    """Return whether somebody outside may write the memory of a computed node."""
    return any(isinstance(block, np.ndarray) and loans.is_lent(block, to_write=True) for block in _here(node))


def is_handed_out(version: Expr) -> bool:
    """Return whether somebody outside has memory of a version that stays the array's."""
    return any(map(loans.is_handed_out, _here(version)))


def _here(node: Expr) -> Sequence[Any]:
    """Return the blocks of a computed node that are in this process."""
    memo = node.memo
    return () if memo is None or (node.env.is_cluster and not memo.on_client) else memo.present


def write_through(base: Base, since: Expr, written: Callable[[Expr], Expr]) -> bool:
    """Write into the memory of a version that was handed out; False, and nothing happens, if it is no longer the
    current one.

    What follows is computed first, so that what fails changes nothing. Nothing pending reads the memory (`apart`).
    """
    from distarray.kernels.backends import NUMPY  # late: the import of the package loads no kernel

    memo = since.stored
    with _lock:
        version = written(since)
        pending = version.unsettled() if version.op is PUT and len(memo.blocks) == 1 else None
        if pending is not None and pending[0][0] is since:
            (_, value), lens = pending  # what is written is less than all of it, as a rule
            found: Any = elements.fetch(value) if type(value) is Expr else value
            places = [(NUMPY.writable_view(lens, memo.blocks[0]), found)]
        else:
            whole = elements.fetch(version)
            slices = [memo.sharding.tile_slices(since.shape, tile) for tile in memo.sharding.tiles()]
            places = [(block, whole[at]) for block, at in zip(memo.blocks, slices, strict=True)]
        with versions.lock:
            if not base.touch(since):
                return False
            for place, values in places:
                np.copyto(place, values, casting="unsafe")
    return True
