"""Forks: what a forked process must not take over from the threads of its parent, which it does not have.

A lock that another thread held when the process was forked would never be released there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

L = TypeVar("L")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def in_child(forget: Callable[[], object]) -> None:
    """Have a function called in each process that is forked from this one, before anything else of this package."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def free_in_child(lock: L) -> L:
    """Return a lock, which a forked process finds free whichever thread of its parent held it: for locks that live as
    long as the process does.
    """
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in list(_locks):
        # What the thread that forks is inside of, as a function is that an evaluation calls, it will release itself.
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()  # as the standard library does with its own


in_child(_free_all)
