"""Whether this thread runs a task: then distarray means the arrays of this task alone.

Code inside a task (a user function of ``map_blocks``, or a Dask task that uses distarray) has no team, no pool, no
Client and a window of its own; it takes no lock, since the thread that waits for the task may hold it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from distarray.lazy import loaded

T = TypeVar("T")


class _ThreadState(threading.local):
    depth = 0


_local = _ThreadState()
_modules = sys.modules


def as_task(function: Callable[..., T], *args: Any) -> T:
    """Return what a function returns that is called as the body of a task.

    It is no context manager: an interrupt that came where it is left would leave the thread inside of a task for good.
    """
    depth = _local.depth
    _local.depth = depth + 1
    try:
        return function(*args)
    finally:
        _local.depth = depth


def is_inside_task() -> bool:
    """Return whether this thread runs a task, of any executor or of a Dask worker."""
    utils = _modules.get("distributed.utils")  # as in `is_on_worker`: one call less, and several for every operation
    return _local.depth > 0 or (utils is not None and is_on_worker())


def is_on_worker() -> bool:
    """Return whether this thread runs a task of a Dask worker, whoever wrote it."""
    # distributed marks the threads of its workers. Every operation asks: to miss an attribute of a `threading.local`
    # costs ten times as much as to miss a key.
    utils = loaded("distributed.utils")
    return utils is not None and vars(utils.thread_state).get("key") is not None
