"""Whether this thread runs a task: then distarray means the arrays of this task alone.

Code inside a task (a user function of ``map_blocks``, or a Dask task that uses distarray) has no team, no pool, no
Client and a window of its own; it takes no lock, since the thread that waits for the task may hold it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _ThreadState(threading.local):
    depth = 0


_local = _ThreadState()


@contextmanager
def inside_task() -> Iterator[None]:
    """Mark a block as the body of a task."""
    depth = _local.depth
    _local.depth = depth + 1
    try:
        yield
    finally:
        _local.depth = depth


def is_inside_task() -> bool:
    """Return whether this thread runs a task, of any executor or of a Dask worker."""
    return _local.depth > 0 or is_on_worker()


def is_on_worker() -> bool:
    """Return whether this thread runs a task of a Dask worker, whoever wrote it."""
    # distributed marks the threads of its workers, once it is imported. Every operation asks, and each call costs.
    state = getattr(sys.modules.get("distributed.utils"), "thread_state", None)
    # To miss an attribute of a `threading.local` costs ten times as much.
    return state is not None and vars(state).get("key") is not None
