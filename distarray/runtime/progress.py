"""How far work is: what runs of tasks note while somebody watches, and what a cluster says when it is asked.

While nobody watches, `board` is None, and that is all that anybody looks at. What runs in this process counts its steps
as they end. What was sent to a cluster is asked for by whoever shows it, a few times a second: workers how many steps
of their programs are left and what came in, the scheduler how many tasks are left.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic, time
from typing import Any, NamedTuple, TypeAlias

from distarray.runtime.wire import PLUGIN

#: A `cluster.ClusterExecutor`, which notes here what it sends.
Executor: TypeAlias = Any


class Work:
    """A Work is one thing that takes time: a plan that is made, or a run of tasks in this process.

    Parameters
    ----------
    n_steps
        Of the run; None: a plan is made.
    """

    def __init__(self, n_steps: int | None) -> None:
        self.n_steps = n_steps
        self.n_done = 0
        self.begin = monotonic()

    def before(self, n: int, args: Sequence[Any]) -> None:
        """Note that a step is about to run: nothing to count."""

    def after(self, n: int, value: Any) -> None:
        """Note that a step is over; called by one thread at a time."""
        self.n_done += 1

    def is_over(self) -> bool:
        """Return whether it has ended without saying so."""
        return False


class SentWork(Work):
    """A SentWork is a run on a cluster: over when its results are there, or nobody has them any more.

    Parameters
    ----------
    executor
        Whose workers it was sent to.
    names
        Of its tasks, which are the first items of their keys; or of the run that its programs belong to.
    n_steps
        Tasks, or steps of all programs.
    futures
        Of what is kept.
    """

    def __init__(self, executor: Executor, names: Collection[str], n_steps: int, futures: Iterable[Any]) -> None:
        super().__init__(n_steps)
        self.executor = executor
        self.names = names
        self._futures = weakref.WeakSet(futures)
        #: By worker and member the steps that a program had left when it was last seen.
        self._left: dict[tuple[str, int], tuple[int, int]] = {}

    def is_over(self) -> bool:
        return all(future.done() for future in list(self._futures))

    def programs_have_left(self, address: str, left: Mapping[int, tuple[int, int]]) -> None:
        """Note how many steps programs of a worker have, and how many are left; programs that are gone are done."""
        for at, (n_steps, _) in list(self._left.items()):
            if at[0] == address:
                self._left[at] = n_steps, 0
        self._left.update({(address, member): counts for member, counts in left.items()})
        done = sum([n_steps - n_left for n_steps, n_left in self._left.values()])
        self.n_done = max(self.n_done, min(done, self.n_steps or 0))

    def tasks_are_left(self, n_left: int) -> None:
        """Note how many tasks are left."""
        self.n_done = max(self.n_done, (self.n_steps or 0) - n_left)


class Look(NamedTuple):
    """A Look is what can be said of all work that takes long.

    Parameters
    ----------
    seconds
        Since the oldest of it began.
    planning
        Seconds since a plan was begun that is not made yet; None if none is.
    n_done, n_steps
        Of runs; no steps if none is under way.
    nbytes
        What came to workers from others meanwhile.
    """

    seconds: float
    planning: float | None
    n_done: int
    n_steps: int
    nbytes: int

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the steps are done, if they go on as they went; None before any is."""
        return self.seconds * (self.n_steps - self.n_done) / self.n_done if self.n_done else None


class Board:
    """A Board has what is at work now."""

    def __init__(self) -> None:
        self._works: set[Work] = set()
        #: By address of a worker the time by its clock up to which what came in is counted.
        self._heard: dict[str, float] = {}
        self._nbytes = 0

    def add(self, work: Work) -> None:
        """Note that work has begun; adding and removing are atomic, and wait for nobody."""
        self._works.add(work)

    def remove(self, work: Work) -> None:
        """Note that work is over."""
        self._works.discard(work)

    @contextmanager
    def at_work(self, work: Work) -> Iterator[Work]:
        """Have work on the board for the time of a block."""
        self.add(work)
        try:
            yield work
        finally:
            self.remove(work)

    def look(self, older_than: float) -> Look | None:
        """Return what is to be said of work that has taken longer than some seconds; None if there is none."""
        now = monotonic()
        for work in self._works.copy():
            if work.is_over():
                self.remove(work)
        found = [work for work in self._works.copy() if now - work.begin > older_than]
        if not found:
            self._nbytes = 0
            self._heard.clear()
            return None
        seconds = now - min(work.begin for work in found)
        self._ask([work for work in found if isinstance(work, SentWork)], seconds)
        plans = [now - work.begin for work in found if work.n_steps is None]
        runs = [(work.n_done, work.n_steps) for work in found if work.n_steps is not None]
        done, steps = (sum(column) for column in zip(*runs)) if runs else (0, 0)
        return Look(seconds, max(plans, default=None), done, steps, self._nbytes)

    def _ask(self, works: Sequence[SentWork], seconds: float) -> None:
        """Ask clusters how far runs are of which the oldest began some seconds ago."""
        for executor in {work.executor for work in works}:
            own = [work for work in works if work.executor is executor]
            for address, (left, nbytes, now) in executor.placement.ask(_at_worker, self._heard, seconds).items():
                self._nbytes += nbytes
                self._heard[address] = now
                for work in own:
                    for name in work.names:
                        work.programs_have_left(address, left.get(name, {}))
            n_left = executor.client.run_on_scheduler(_at_scheduler, [name for work in own for name in work.names])
            for work in own:
                if found := [n_left[name] for name in work.names if name in n_left]:
                    work.tasks_are_left(sum(found))


def _at_worker(
    heard: Mapping[str, float], seconds: float, dask_worker: Any
) -> tuple[dict[str, dict[int, tuple[int, int]]], int, float]:
    """Return by run and member the steps of programs, and those left; bytes that came in since this worker was heard,
    or for some seconds; and the time here.
    """
    transport, now = dask_worker.plugins[PLUGIN].transport, time()
    nbytes, since = 0, heard.get(dask_worker.address, now - seconds)
    for entry in reversed(dask_worker.transfer_incoming_log):
        if entry["stop"] <= since:
            break
        nbytes += entry["total"]
    return transport.steps_left(), nbytes, now


def _at_scheduler(names: Collection[str], dask_scheduler: Any) -> dict[str, int]:
    """Return how many tasks of a name are left, of those names that tasks have."""
    found = {}
    for name in names:
        group = dask_scheduler.task_groups.get(name)
        if group is not None:
            found[name] = sum([group.states[state] for state in ("waiting", "processing", "queued", "no-worker")])
    return found


#: Where work is noted; None while nobody watches.
board: Board | None = None
_NOBODY = nullcontext()


def planning() -> AbstractContextManager[Any]:
    """Return a block in which a plan is made."""
    return _NOBODY if board is None else board.at_work(Work(None))


def counted(n_steps: int) -> AbstractContextManager[Work | None]:
    """Return a block in which steps run in this process, which tell the work that it gives; None if nobody watches."""
    return _NOBODY if board is None else board.at_work(Work(n_steps))


def sent(executor: Executor, futures: Iterable[Any], facts: Callable[[], tuple[Collection[str], int]]) -> None:
    """Note a run that was sent to a cluster.

    Parameters
    ----------
    facts
        Gives its names and the number of its steps, see `SentWork`; called only if somebody watches.
    """
    if board is not None:
        board.add(SentWork(executor, *facts(), futures))


def put_up() -> Board:
    """Have work noted on a new board."""
    global board
    board = Board()
    return board


def take_down() -> None:
    """Have work noted no more."""
    global board
    board = None
