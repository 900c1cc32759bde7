"""Threads that work at a kernel beside the one that runs it, while nobody else needs them.

A tile is computed by one step, which has one thread. Where a member has more threads than tiles, a kernel is computed
in parts: the thread that runs it takes them one after the other, and so does every thread that is free meanwhile. None
is waited for that has not begun, so a kernel ends whether or not somebody helps. Which parts there are is decided
before any of them begins, and what they give is put together in their order: the bits of a result do not depend on who
helped.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from distarray import hooks
from distarray.kernels.inside import as_task
from distarray.sharding.cuts import boundaries

#: Cost from which on help is asked for, which comes some ten microseconds later: bytes that are read and written once,
#: as fast as memory; what takes longer counts as more (`elementwise`).
HELPED = 1 << 24
#: Cost of an element that is computed by some instructions.
SOME = 32

#: What a thread is to do.
Work: TypeAlias = Callable[[], None]
Item = TypeVar("Item")
T = TypeVar("T")


class Helpers(Protocol):
    """Helpers are the threads of a member that may be free."""

    @property
    def n_threads(self) -> int:
        """Return how many threads the member has, the one that asks included."""

    def start(self, work: Work) -> bool:
        """Have a free thread call a function, which raises nothing, in the context of this one (`contextvars`); return
        False if no thread is free.
        """


class _Thread(threading.local):
    helpers: Helpers | None = None


_thread = _Thread()


def helped_by(helpers: Helpers, function: Callable[..., T], *args: Any) -> T:
    """Return what a function returns; kernels that it runs in this thread have these helpers.

    It is no context manager, as `as_task` is none.
    """
    before = _thread.helpers
    _thread.helpers = helpers
    try:
        return function(*args)
    finally:
        _thread.helpers = before


def _helpers() -> Helpers | None:
    """Return the helpers of this thread; None where it has none."""
    if _thread.helpers is not None:
        return _thread.helpers
    return None if hooks.find_helpers is None else hooks.find_helpers()


def is_helped(n_elements: int) -> bool:
    """Return whether help is asked for with a kernel that computes so many elements."""
    return n_elements * SOME >= HELPED


def threads_for(n_elements: int) -> int:
    """Return how many threads can work at a kernel of this thread, this one included: one where it is small."""
    helpers = _helpers() if is_helped(n_elements) else None
    return 1 if helpers is None else helpers.n_threads


def threads_for_cost(cost: int) -> int:
    """Return how many threads can work at what costs so much (`HELPED`), each at half of what help is asked for."""
    helpers = _helpers() if cost >= HELPED else None
    return 1 if helpers is None else min(helpers.n_threads, 2 * cost // HELPED)


def run_along(extent: int, n: int, part: Callable[[int, int], None], helpers: Helpers | None = None) -> None:
    """Call a function for the begin and the end of each of `n` parts of a loop that has elements: see `run_parts`."""
    run_parts([partial(part, *edges) for edges in pairwise(boundaries(extent, n)) if edges[0] < edges[1]], helpers)


def run_parts(parts: Sequence[Work], helpers: Helpers | None = None) -> None:
    """Call functions, each once, in this thread and in those that are free; return when all are over.

    numpy's floating-point state is that of this thread for all of them.

    Parameters
    ----------
    helpers
        Those of this thread if None.

    Raises
    ------
    BaseException
        What the first of them raised that raised something; those behind it may not have been called. All before it
        were, so it is the same one, however many threads there are.
    """
    if len(parts) < 2 or (helpers is None and (helpers := _helpers()) is None):
        for part in parts:
            part()
        return
    shared = SharedWork(parts)
    helps: list[_Help] = []
    for _ in range(len(parts) - 1):
        help_ = _Help(shared)
        helps.append(help_)  # first, since an interrupt may come in between
        if not helpers.start(help_.give):
            helps.pop()
            break
    _work(shared)
    for help_ in helps:
        help_.end()
    shared.check()


class SharedWork(Generic[Item]):
    """A SharedWork is the parts of a kernel, or the slices of a run, each with its number and for the thread that asks
    first.

    What several threads do with its lists are single calls of their methods, of which each is whole. Locks would be
    waited for beside the one of the interpreter, and that takes longer than a part.
    """

    __slots__ = ("_errors", "_left")

    def __init__(self, items: Iterable[Item]) -> None:
        self._left = [*reversed([*enumerate(items)])]
        self._errors: list[tuple[int, BaseException]] = []

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        while self._left:
            try:
                yield self._left.pop()
            except IndexError:  # another thread took the last one
                return

    def fail(self, number: int, error: BaseException) -> None:
        """Note that an item has raised something: those that nobody has begun are left out."""
        self._errors.append((number, error))
        self._left.clear()

    def check(self) -> None:
        """Raise what the first item raised that raised something: all before it are done, whoever took them."""
        if self._errors:
            try:
                raise min(self._errors, key=lambda found: found[0])[1]
            finally:
                self._errors.clear()  # its traceback holds this frame


def _work(shared: SharedWork[Work]) -> None:
    """Take parts until there are no more, or one raises something."""
    number = -1
    try:
        for number, part in shared:  # noqa: B007  # it is told with what it raised
            part()
            del part
    except BaseException as error:
        shared.fail(number, error)


class _Help:
    """A _Help is what one other thread does for a kernel, unless it comes too late."""

    __slots__ = ("_is_over", "_shared", "_to_begin")

    def __init__(self, shared: SharedWork[Work]) -> None:
        self._shared = shared
        #: Empty once the helper has begun, or nobody waits for it any more: who empties it knows.
        self._to_begin = [True]
        self._is_over = allocate_lock()
        self._is_over.acquire()

    def give(self) -> None:
        """Take parts until there are no more; called in the other thread."""
        try:  # all of it: an interrupt may come between any two lines, and somebody waits
            self._to_begin.pop()
            as_task(_work, self._shared)
        except IndexError:
            pass  # too late: the work itself raises nothing
        finally:
            self._is_over.release()

    def end(self) -> None:
        """Wait until the helper is over, if it has begun."""
        try:
            self._to_begin.pop()
        except IndexError:
            self._is_over.acquire()
