"""Small arrays that lie on workers have a copy in the client when their values are read one after the other.

A number of what workers have takes a message to a worker, and one back: some ten milliseconds, in which this process
computes with small arrays for a thousand steps. So what is read again is copied here, once, and what is made of it is
computed here from then on (`distarray.runtime.small`). The blocks stay where they are, and plans of workers read them.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque

from distarray import config
from distarray.expr.expr import SOURCE, Expr, Stored, postorder
from distarray.forks import free_in_child
from distarray.kernels.inside import is_inside_task
from distarray.runtime import small
from distarray.runtime.observations import fetch
from distarray.runtime.promised import promised_of
from distarray.runtime.reading import STAYS_NBYTES

#: Bytes that a network of 1 Gbit/s carries in the time of one read: an array comes after as many reads as it has these.
READ_NBYTES = 1 << 20

#: By node how often it was read, or what it was made of.
_reads: weakref.WeakKeyDictionary[Expr, int] = weakref.WeakKeyDictionary()
_lock = free_in_child(threading.Lock())
_copied_nbytes = 0
#: Bytes of copies whose nodes are gone, until somebody counts them: finalizers come anywhere, and wait for no lock.
_gone: deque[int] = deque()


def bring_home(target: Expr) -> None:
    """Copy what a pending node needs of workers to this process, if this was read before and all is small.

    Arrays of up to `STAYS_NBYTES` come when they are first needed so, larger ones after a read for each `READ_NBYTES`.
    Those of one node have `small.SMALL_NBYTES` together at most, and all copies ``literal-max-bytes``. Nothing comes
    whose cut somebody said, nothing where ``block-bytes`` is said, and nothing for steps that take longer than a
    message.

    Parameters
    ----------
    target
        Whose value is about to be read here.
    """
    env = target.env
    if not env.is_cluster or config.get("block-bytes") is not None or is_inside_task():
        return
    order = postorder((target,))
    memos = [(n, memo) for n in order if (memo := n.memo) is not None and not memo.on_client and memo.home_copy is None]
    if not memos or any(n.env is not env for n in order) or not all(_may_come(*found) for found in memos):
        return
    nbytes = sum([n.nbytes for n, _ in memos])
    coming = {id(n) for n, _ in memos}
    if nbytes > small.SMALL_NBYTES or not (
        # each step takes no longer than a message to a worker and back
        small.is_small(order, env, coming=coming)
        and all(n.memo is not None or small.is_light(n, small.SENT_NBYTES) for n in order)
    ):
        return
    if _is_read_often([n for n, _ in memos], order) and _have_room(nbytes):
        for node, _ in memos:
            weakref.finalize(node, _gone.append, node.nbytes).atexit = False
        for node, memo in memos:
            memo.home_copy = fetch(node)


def _is_read_often(needed: list[Expr], order: list[Expr]) -> bool:
    """Return whether nodes were read so often that their bytes are worth to be brought here; count this time."""
    with _lock:
        n_reads = 1 + max([_reads.get(n, 0) for n in needed])
        for n in order:
            if n.memo is not None or n.is_live:
                _reads[n] = n_reads
    return all(n.nbytes <= max(STAYS_NBYTES, (n_reads - 1) * READ_NBYTES) for n in needed)


def _have_room(nbytes: int) -> bool:
    """Return whether all copies may have so many bytes more, and count them."""
    global _copied_nbytes
    with _lock:
        while _gone:
            _copied_nbytes -= _gone.popleft()
        has_room = bool(_copied_nbytes + nbytes <= config.get("literal-max-bytes"))
        _copied_nbytes += nbytes * has_room
    return has_room


def _may_come(node: Expr, memo: Stored) -> bool:
    """Return whether an evaluated node is an array of numbers that are there, of which nobody said where it lies."""
    is_chunked = node.op is SOURCE and not memo.sharding.is_regular  # by whom it came from
    is_free = node.pin is None and not memo.sharding.is_copied and not is_chunked
    return is_free and not isinstance(node.dtype, tuple) and not node.dtype.hasobject and promised_of(node) is None
