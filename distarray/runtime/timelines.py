"""Timelines: what the threads of a member program did when, for Dask's dashboard.

For Dask a program is one task. So that its task stream, ``client.get_task_stream()``, performance reports and the
metrics of spans show what happens inside, each program notes when its threads computed which stage, and when they
waited for messages of others. The rows travel with the message that the program's task is done, and the scheduler's
plugin hands them to the plugin that keeps the stream, as if each stage were a task with a thread of its own
(``startstops`` of distributed: a wait is a transfer).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from time import time
from typing import Any, NamedTuple, TypeAlias

from dask.typing import Key

from distarray.runtime.wire import PROGRAM

#: In the metadata of the task of a program: its rows.
ROWS = "distarray-rows"
#: What takes a smaller part of the time that its program has taken so far, or fewer seconds, is drawn as a part of what
#: comes before it: so a program has some hundred rows for each tenfold of that time at most, however many steps it has.
SMALLEST_PART = 1 / 50
SHORTEST = 1e-4


class Activity(NamedTuple):
    """An Activity is a time in which a thread of a program computed steps of one stage, or waited for what they read.

    Parameters
    ----------
    name
        Of the steps, as Dask's dashboard shows it.
    stage
        Its number.
    lane
        Number of the thread: the smallest that no other one had.
    is_wait
        Whether it waited, and did not compute.
    start, stop
        In seconds since the epoch.
    """

    name: str
    stage: int
    lane: int
    is_wait: bool
    start: float
    stop: float


#: Returns the function of a step, or of a task that was fused to one, as one that notes when it runs: of its key, its
#: number in the step, and the function.
Noted: TypeAlias = Callable[[Any, int, Callable[..., Any]], Callable[..., Any]]


def _name_of(key: Any) -> str:
    """Return what the dashboard calls the steps of a stage: Dask cuts names off at words with digits after a dash.

    >>> _name_of(("dx-exp2-5f3a-7", 3, 0))
    'dx:exp2'
    """
    name, _, _ = key[0].removeprefix("dx-").partition("-")
    return f"{PROGRAM}{name}"


class Timeline:
    """A Timeline is what one execution of a program notes; any thread may note and read at any time."""

    def __init__(self) -> None:
        self._begin = time()
        self._lock = Lock()
        self._lanes: defaultdict[int, list[Activity]] = defaultdict(list)
        self._taken: set[int] = set()
        self._seconds: defaultdict[tuple[str, bool], float] = defaultdict(float)

    @contextmanager
    def lane(self) -> Iterator[Noted]:
        """Have this thread note its steps in the first lane that is free."""
        with self._lock:
            lane = next(n for n in range(len(self._taken) + 1) if n not in self._taken)
            self._taken.add(lane)
        free = time()

        def noted(key: Any, _: int, function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any) -> Any:
                nonlocal free
                start = time()
                value = function(*args)
                before, free = free, time()
                wait = Activity(_name_of(key), key[1], lane, True, before, start)
                self._note(wait, wait._replace(is_wait=False, start=start, stop=free))
                return value

            return run

        try:
            yield noted
        finally:
            with self._lock:
                self._taken.remove(lane)

    def _note(self, *rows: Activity) -> None:
        with self._lock:
            for row in rows:
                self._seconds[row.name, row.is_wait] += row.stop - row.start
                self._draw(self._lanes[row.lane], row)

    def _draw(self, rows: list[Activity], row: Activity) -> None:
        """Add a row, or make the last one longer."""
        least = max(SHORTEST, SMALLEST_PART * (row.stop - self._begin))
        is_small = row.stop - row.start < least
        if rows and row.start - rows[-1].stop < least:
            last = rows[-1]
            if row[:4] == last[:4] or (is_small and not row.is_wait and not last.is_wait):
                rows[-1] = last._replace(stop=row.stop)
                return
        if not (row.is_wait and is_small):
            rows.append(row)

    def rows(self, delay: float = 0.0) -> list[Activity]:
        """Return the rows, by lane and time, so many seconds later: the scheduler's clock may go before this one."""
        with self._lock:
            found = [row for _, rows in sorted(self._lanes.items()) for row in rows]
        return [row._replace(start=row.start + delay, stop=row.stop + delay) for row in found]

    def seconds(self) -> Mapping[str, float]:
        """Return the seconds of all threads by the name of the stage that they computed, and those that they waited."""
        found: defaultdict[str, float] = defaultdict(float)
        with self._lock:
            for (name, is_wait), seconds in self._seconds.items():
                found["wait" if is_wait else name] += seconds
        return found


def shown(scheduler: Any, key: Key, facts: Mapping[str, Any]) -> None:
    """Show what a program whose task is done did in Dask's task stream, if there is one: the scheduler keeps it nowhere
    else. `facts` are what this tells plugins of the task.
    """
    rows: list[Activity] = []
    for metadata in (scheduler.tasks[key].metadata, facts.get("metadata")):
        rows = (metadata or {}).pop(ROWS, rows)
    stream = scheduler.plugins.get("task-stream")
    if stream is None:
        return
    found: defaultdict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for name, stage, lane, is_wait, start, stop in rows:
        action = "transfer" if is_wait else "compute"
        found[name, stage, lane].append({"action": action, "start": start, "stop": stop})
    for (name, stage, lane), startstops in found.items():
        own = {"key": (name, stage), "thread": lane, "startstops": startstops, "nbytes": 0, "metadata": {}}
        stream.buffer.append({**facts, **own})  # the hook of Dask 2025.4 drops what is no task of the scheduler
        stream.index += 1
