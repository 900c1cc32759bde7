"""Runs of this process that are under way: planned with the lock held, computed without it.

So threads evaluate side by side. What a run needs is safe meanwhile: nobody overwrites what it reads (`beside`), and
who needs what it computes waits for it (`wait_for`), which also keeps everybody from the blocks that it overwrites
itself: no handle refers to these, so they are reached through what it computes only.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from distarray.expr.expr import Environment, Expr, Others
from distarray.kernels.inside import is_inside_task
from distarray.kernels.waits import Condition
from distarray.runtime.donation import overwriting
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.members import LOCK, locked
from distarray.runtime.retention import safe_nbytes
from distarray.weak import alive

_landed = Condition(LOCK)
#: Those of all threads; an interrupt may come before a run begins, and then nothing is left of it.
_flights: weakref.WeakSet[Flight] = weakref.WeakSet()


class Flight:
    """A Flight is one run on the threads of this process, ready to begin.

    Parameters
    ----------
    order
        All nodes that it needs.
    compute
        Runs the kernels; what it returns is given to `commit`.
    commit
        Sets the memos of what is kept.
    overwrites
        Whether it writes into blocks that are there, and so is not to be interrupted before it is committed.
    """

    __slots__ = ("__weakref__", "_commit", "_compute", "_overwrites", "is_over", "order", "thread")

    def __init__(
        self,
        order: Sequence[Expr],
        compute: Callable[[], Any],
        commit: Callable[[Any], None],
        *,
        overwrites: bool,
    ) -> None:
        self.order = order
        self.thread = threading.current_thread()
        self.is_over = False
        self._compute = compute
        self._commit = commit
        self._overwrites = overwrites
        if not is_inside_task():  # what a task computes is its own
            _flights.add(self)

    def run(self) -> None:
        """Compute and commit; the lock is held for the latter only."""
        with interrupts_deferred() if self._overwrites else nullcontext():
            try:
                with overwriting(self.order if self._overwrites else ()):
                    results = self._compute()
                with locked():
                    self._commit(results)
            finally:
                self.is_over = True
                if self in _flights:
                    with LOCK:
                        _flights.discard(self)
                        _landed.notify_all()


def _others() -> list[Flight]:
    own = threading.current_thread()
    return [f for f in alive(_flights) if not f.is_over and f.thread is not own and f.thread.is_alive()]


def are_others() -> bool:
    """Return whether another thread has a run under way."""
    return bool(_flights) and bool(_others())


def wait_for(order: Sequence[Expr], env: Environment) -> bool:
    """Wait for runs of other threads that compute any of some nodes, or together with which these need more memory than
    is sure to be there; with the lock held, which others get meanwhile. Return whether there was any.
    """
    if not _flights:
        return False
    waited = False
    needed, nbytes = {id(n) for n in order}, sum([n.nbytes for n in order])
    while flights := _others():
        read = [n for f in flights for n in f.order]
        is_room = nbytes + sum([n.nbytes for n in read]) <= safe_nbytes(env)
        if is_room and not any(n.memo is None and id(n) in needed for n in read):
            break
        waited = True
        _landed.wait()
    return waited


def beside(others: Others) -> Others:
    """Return what else is needed (see `Others`), with all that runs of other threads need."""
    flights = _others() if _flights else []
    if not flights:
        return others

    def found() -> list[Expr] | None:
        known = others()
        return None if known is None else [*known, *[n for f in flights for n in f.order]]

    return found
