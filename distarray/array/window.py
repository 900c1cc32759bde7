"""The window of deferred work: when pending operations are run.

Operations that are not computed at the call (`at_call`) build expressions. The nodes that handles refer to are listed
here, per thread, weakly: a local that died leaves nothing. When the window is full, the next operation first runs what
is pending and live (`enter`), so a loop of numpy statements needs no call that numpy does not have and runs in bounded
memory.

A window is a whole number of periods of the program: the places in the user's code that made the pending nodes are
remembered, and once they repeat, every window begins at the same phase of the loop. So a loop has one plan, not one per
phase.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any

from distarray import config, hooks
from distarray.array import versions
from distarray.errors import PACKAGE, MemoryBudgetError
from distarray.expr.expr import ITEM, Environment, Expr, postorder
from distarray.forks import free_in_child
from distarray.kernels.inside import is_inside_task
from distarray.runtime import evaluate, observations, small
from distarray.runtime.homing import bring_home
from distarray.runtime.members import locked
from distarray.runtime.retention import hold_much, made_along, streams
from distarray.scoped import Scoped

#: Windows that may be running on a cluster while the program goes on.
IN_FLIGHT = 2
#: Operations that were observed, or died, after which it is asked how many bytes wait behind them.
PASSED = 64


class _Window:
    """A _Window has the pending nodes of one thread."""

    __slots__ = (
        "__weakref__", "failed", "in_flight", "is_waiting", "limit", "n_passed", "nodes", "observed", "places", "size",
        "thread",
    )  # fmt: skip

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        #: Whether all that the thread needs is known, while it waits for what it observes. Else nobody can tell what
        #: versions it has read as long as it is inside of this package (`_is_inside`).
        self.is_waiting = False
        #: What the thread is waiting for.
        self.observed: Sequence[Expr] = ()
        self.nodes: list[weakref.ref[Expr]] = []
        self.places: list[Hashable] = []
        self.size = -1
        self.limit = 0
        #: Operations that were observed, or died, since it was last asked how much waits behind them.
        self.n_passed = 0
        self.in_flight: deque[Callable[[], None]] = deque()
        #: Pending nodes that raised in a flush, or depend on one: they raise when they are observed.
        self.failed: weakref.WeakSet[Expr] = weakref.WeakSet()


class _Life:
    """A _Life lives as long as a thread does."""

    __slots__ = ("__weakref__",)


class _ThreadWindow(threading.local):
    def __init__(self) -> None:
        self.outer = _Window()
        self.inner = _Window()
        self._life = _Life()
        if not is_inside_task():  # what a task reads is its own, and threads of an executor end inside of this package
            with _lock:
                _windows.append((weakref.ref(self._life), self.outer))

    @property
    def window(self) -> _Window:
        """Return this thread's window; inside a task another one, since an evaluation is under way outside."""
        return self.inner if is_inside_task() else self.outer


_lock = free_in_child(threading.RLock())  # a finalizer may ask, too
#: Of all threads; those of threads that have ended as long as somebody has an array that waits in them.
_windows: list[tuple[weakref.ref[_Life], _Window]] = []
_local = _ThreadWindow()


def be_known() -> None:
    """Note that this thread is about to read a version: whoever writes elements where they are looks at it from now on.

    Which is so from its first window on; a thread has one as soon as anybody asks.
    """
    _local.outer  # noqa: B018  # made by asking


def period_of(places: Sequence[Hashable]) -> int:
    """Return the smallest period with which a sequence ends, seen at least twice; 0 if there is none.

    >>> period_of("xyabcabcabc")
    3
    """
    n = len(places)
    if not n:
        return 0
    last = places[-1]
    for p in range(1, n // 2 + 1):
        if places[n - 1 - p] == last and places[n - p :] == places[n - 2 * p : n - p]:
            # An inner loop repeats too: the outer one's period must hold for longer than one turn of it.
            span = min(n, max(3 * p, 64)) // p * p
            if span >= 2 * p and all(places[i] == places[i - p] for i in range(n - 1, n - span + p - 1, -1)):
                return p
    return 0


def enter() -> None:
    """Run what is pending if the window is full: called on entry of an operation, before its node exists."""
    window = _local.window
    if window.places:
        size = config.get("window")
        if size != window.size:
            window.size, window.limit = size, size
        if len(window.places) >= window.limit:
            _full(window)


def _full(window: _Window) -> None:
    size = window.size
    period = period_of(window.places)
    window.limit = size // period * period if 0 < period <= size else size
    flush()


def register(node: Expr) -> None:
    """List a new node that a handle refers to."""
    if _is_traced.get():
        return
    window = _local.window
    window.nodes.append(weakref.ref(node))
    origin = node.origin
    window.places.append((node.op.name, None) if origin is None else origin.place)


def pending() -> Iterator[Expr]:
    """Yield the nodes of all threads that wait and that a handle refers to, oldest first in each thread; and what is
    observed.
    """
    for window in _all_windows():
        yield from window.observed
        yield from _waiting(window)


def _lives(entry: tuple[weakref.ref[_Life], _Window]) -> bool:
    return entry[0]() is not None


def _all_windows() -> list[_Window]:
    """Return the windows of all threads; waits for no lock, since who asks may have one."""
    if not all(map(_lives, list(_windows))) and _lock.acquire(blocking=False):
        try:
            _windows[:] = [entry for entry in _windows if _lives(entry) or _waiting(entry[1])]
        finally:
            _lock.release()
    return [window for _, window in list(_windows)]


def _waiting(window: _Window) -> list[Expr]:
    return [node for ref in list(window.nodes) if (node := ref()) is not None and _waits(node)]


def _waits(node: Expr) -> bool:
    return node.memo is None and node.is_live


def is_waiting(env: Environment) -> bool:
    """Return whether a node of this thread and of an environment waits that a handle refers to."""
    nodes = _local.window.nodes  # none, where all is computed at the call, and then it is asked at each
    return bool(nodes) and any((n := ref()) is not None and n.env == env and _waits(n) for ref in reversed(nodes))


hooks.is_waiting = is_waiting


def flush() -> None:
    """Run what is pending in this thread. On a cluster it waits only for the oldest window, once more than `IN_FLIGHT`
    are under way.
    """
    window = _local.window
    failed = window.failed
    nodes = [n for n in _waiting(window) if n not in failed and not streams(n)]
    window.places.clear()
    if nodes:
        try:
            evaluate.evaluate(nodes, pending_beside(nodes))
        except Exception:
            if not _evaluate_one_by_one(nodes, failed):
                raise
    versions.forget_settled()
    # Only now, so that an interrupt leaves them listed; what streams or failed still reads what it was made from.
    window.nodes = [weakref.ref(n) for n in _waiting(window)]
    running = observations.waiter(nodes)
    if running is not None:
        window.in_flight.append(running)
        while len(window.in_flight) > IN_FLIGHT:
            # What failed there raises when it is observed, not here.
            with suppress(Exception):
                window.in_flight.popleft()()


def _evaluate_one_by_one(nodes: Sequence[Expr], failed: weakref.WeakSet[Expr]) -> bool:
    """Compute what does not depend on what fails; the rest is left to raise when it is observed. Whether any failed."""
    any_failed = False
    for node in nodes:
        if node.memo is not None:
            continue
        try:
            if failed.isdisjoint(postorder([node])):
                evaluate.evaluate((node,), pending_beside((node,)))
                continue
        except Exception:
            pass
        failed.add(node)
        any_failed = True
    return any_failed


def run(*nodes: Expr) -> None:
    """Compute nodes at the call, together: what a kernel raises is raised here, on a cluster too."""
    if not nodes[0].env.is_cluster:
        observe(nodes)
        return
    # What is kept besides must not share a task with what may fail.
    observe([n for n in postorder(nodes) if n not in nodes and n.memo is None and n.is_live])
    observe(nodes)
    observations.wait_for(nodes)


def pending_beside(nodes: Iterable[Expr]) -> Callable[[], list[Expr] | None]:
    """Return what else is pending, for `evaluate`."""

    def others() -> list[Expr] | None:
        waits = [(w, w.observed) for w in _all_windows() if w.is_waiting]
        if is_read_beside():
            return None
        here = {id(n) for n in nodes}
        found = [n for n in pending() if id(n) not in here] + versions.still_needed(list(nodes))
        # Of a thread whose wait has ended meanwhile nobody knows what it reads now.
        return found if all(w.is_waiting and w.observed is seen for w, seen in waits) else None

    return others


def _is_inside(frame: FrameType | None) -> bool:
    """Return whether a frame runs code of this package, or code that this package called."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def is_read_beside() -> bool:
    """Return whether another thread may have read versions for something that it has not listed."""
    own = _local.outer
    if len(_windows) == 1:
        return False
    threads = {w.thread for w in _all_windows() if w is not own and not w.is_waiting}
    return bool(threads) and any(map(_is_inside, _frames(threads)))


def _frames(threads: Collection[int]) -> list[FrameType]:
    """Return what other threads run; nothing of this one, since a frame that knows itself is garbage with all that it
    has.

    The interpreter makes the frames while it holds a lock of its own: a collection of garbage there runs finalizers,
    and the next thread that asks never gets it, nor lets this one go on (CPython 3.11, gh-106883).
    """
    with _lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return [frame for thread, frame in sys._current_frames().items() if thread in threads]
        finally:
            if was_enabled:
                gc.enable()


def _compute(version: Expr) -> None:
    evaluate.evaluate((version,), pending_beside((version,)))
    observations.wait_for((version,), told=False)


hooks.on_failure = partial(versions.restore, _compute)


#: Whether it is only found out in this context what a function makes.
_is_traced: ContextVar[bool] = ContextVar("distarray traced", default=False)


def traced() -> Scoped[bool]:
    """Return a context in which nothing that is new is listed, or can be looked at."""
    return Scoped(_is_traced, True)


class _TracedError(Exception):
    """A _TracedError says that a function looks at elements of what stands for operands."""


def observe(nodes: Sequence[Expr], *, is_read: bool = False) -> None:
    """Compute these nodes now, and whatever live handle's node they need.

    Parameters
    ----------
    is_read
        Whether the values are about to be read here: some of what workers have is copied here first.
    """
    for node in nodes:
        if node.memo is None:
            break
    else:
        return
    if _is_traced.get():
        raise _TracedError
    if is_read and nodes[0].env.is_cluster:
        for node in nodes:
            bring_home(node)
    window = _local.window
    if len(nodes) > 1 or not small.is_settled_alone(nodes[0]):
        _evaluate(nodes, window)
    versions.forget_settled()
    waiting = _waiting(window)
    window.nodes = [weakref.ref(n) for n in waiting]
    n_places = len(window.places)
    window.places = window.places[max(n_places - len(waiting), 0) :] if waiting else []
    n_passed, size = window.n_passed, config.get("window")
    window.n_passed = n_passed + n_places - len(window.places) if waiting else 0
    asked_after = max(1, min(size, PASSED))
    if window.n_passed // asked_after <= n_passed // asked_after:
        return
    # What a loop makes beside what it observes is a window too, once it is as long: `acc += x; float(x[0])`. Or once
    # much is there for its sake alone.
    waiting = [n for n in waiting if n not in window.failed and not streams(n)]
    is_full = window.n_passed >= size and any(len(postorder([n])) >= size for n in waiting)
    if window.n_passed >= size:
        window.n_passed = 0
    if is_full or hold_much(waiting):
        window.limit = 0  # the next operation runs it


def _evaluate(nodes: Sequence[Expr], window: _Window) -> None:
    together = made_with(nodes)
    was_observed, window.observed = window.observed, (*window.observed, *together)
    was_waiting, window.is_waiting = window.is_waiting, True
    try:
        try:
            evaluate.evaluate(together, pending_beside(together))
        except MemoryBudgetError:
            if len(together) == len(nodes):
                raise
            together = nodes  # nothing has run, and what nobody asked for may wait
            evaluate.evaluate(nodes, pending_beside(nodes))
    except Exception as error:
        versions.restore(_compute, together, error)
        raise
    finally:
        window.is_waiting = was_waiting
        window.observed = was_observed


def made_by_look(nodes: Sequence[Expr]) -> Sequence[Expr]:
    """Return what a look at nodes makes: these, and what is made with them."""
    return nodes if len(nodes) == 1 and small.is_made_alone(nodes[0]) else made_with(nodes)


def made_with(nodes: Sequence[Expr]) -> Sequence[Expr]:
    """Return `nodes`, and what else waits in this thread that comes of the same work: the other results of their
    operations, and what is made in the passes that make them (`made_along`).
    """
    window, env, asked = _local.window, nodes[0].env, {id(n) for n in nodes}
    beside = [n for n in _waiting(window) if id(n) not in asked]
    if not beside or all(n.memo is not None for n in nodes):
        return nodes
    made = {id(m) for n in nodes if n.op is ITEM and (m := _made_by(n)) is not None}
    siblings = [n for n in beside if id(_made_by(n)) in made] if made else []
    if not env.is_cluster:
        with locked():  # what another thread evaluates drops its operands: some may be there by now
            order = postorder(nodes)
            here = {id(n) for n in order}
            beside = [n for n in beside if n.memo is None and id(n) not in here and n.env is env]
            beside = [n for n in beside if n not in window.failed]
            if beside and not small.is_small(order, env):
                siblings += made_along(nodes, order, beside, env)
    return (*nodes, *siblings)


def _made_by(node: Expr) -> Any:
    """Return the pending operation of several results that a node is one of; None if it is none."""
    found = node.unsettled() if node.op is ITEM else None
    return None if found is None else found[0][0]
