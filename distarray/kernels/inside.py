"""Whether this thread runs a task: then distarray means the arrays of this task alone.

Code inside a task (a user function of ``map_blocks``, or a Dask task that uses distarray) has no team, no pool, no
Client and a window of its own; it takes no lock, since the thread that waits for the task may hold it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distarray.lazy import loaded


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
    if _local.depth:
        return True
    # As `is_on_worker`; every operation asks, and a call costs.
    utils = loaded("distributed.utils")
    return utils is not None and getattr(utils.thread_state, "key", None) is not None


def is_on_worker() -> bool:
    """Return whether this thread runs a task of a Dask worker, whoever wrote it."""
    # distributed marks the threads of its workers
    utils = loaded("distributed.utils")
    return utils is not None and getattr(utils.thread_state, "key", None) is not None
