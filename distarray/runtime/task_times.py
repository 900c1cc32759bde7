"""When tasks ran, stage by stage: what ``explain(analyze=True)`` measures.

Nobody who does not measure pays for it: only while `measuring` is entered does `timed` put a clock around each task
that is handed out. The clocks write down spans where the tasks run, in this process or in those of a cluster's workers;
`measuring` collects them at its end.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from dask._task_spec import Task

from distarray.kernels import tasks
from distarray.kernels.inside import is_inside_task
from distarray.lower.messages import Key
from distarray.lower.template import Lowered
from distarray.runtime.clients import placement_of
from distarray.runtime.execution import waits_of_thread

__all__ = ["Span", "busy_seconds", "measuring", "start", "stop", "timed"]


class Span(NamedTuple):
    """A Span is a time in which a member was at work for a stage.

    Parameters
    ----------
    stage
        Number of the stage.
    member
        Rank.
    is_transfer
        Whether it was waiting for data, and not computing.
    start, stop
        In seconds, by the clock of the member.
    """

    stage: int
    member: int
    is_transfer: bool
    start: float
    stop: float


#: Name of the measurement that what this thread evaluates belongs to.
_current: ContextVar[str | None] = ContextVar("distarray_measurement", default=None)
#: What was written down in this process, by name of the measurement.
_spans: dict[str, list[Span]] = {}
_lock = threading.Lock()


def start(name: str) -> None:
    """Begin to write down spans in this process; workers that share a process share them."""
    with _lock:
        _spans.setdefault(name, [])


def stop(name: str) -> list[Span]:
    """Return what was written down in this process; nothing if another call has it already."""
    with _lock:
        return _spans.pop(name, [])


@contextmanager
def measuring(client: Any = None) -> Iterator[list[Span]]:
    """Measure what this thread evaluates on the workers of a Dask client, or in this process.

    Yields
    ------
    list of Span
        Filled at the end of the block. Whoever evaluates has to wait for the results in the block.
    """
    name = uuid.uuid4().hex
    on_all: Callable[..., Any] = (lambda f, n: {None: f(n)}) if client is None else placement_of(client).ask
    on_all(start, name)
    token = _current.set(name)
    found: list[Span] = []
    try:
        yield found
    finally:
        _current.reset(token)
        for spans in on_all(stop, name).values():
            found += spans


def timed(lowered: Lowered) -> Mapping[Key, Task]:
    """Return the tasks of an evaluation: with clocks while this thread measures, else as they are.

    Each of several tasks that were fused to one (`fuse`) has a clock of its own: its time is that of its own stage,
    whatever the key of the one task. What that waits for counts for the stage of the first of them.
    """
    name = _current.get()
    if name is None or is_inside_task():  # what runs inside a task belongs to the stage of the task
        return lowered.tasks
    return {key: _with_clock(name, key, task, lowered.members[key]) for key, task in lowered.tasks.items()}


def _with_clock(name: str, key: Key, task: Task, member: int) -> Task:
    if task.func is not tasks.run_chain:
        return Task(key, partial(_run, name, key[1], member, True, task.func), *task.args)
    links, *args = task.args
    with_clocks = [
        link._replace(function=partial(_run, name, link.key[1], member, n == 0, link.function))
        for n, link in enumerate(links)
    ]
    return Task(key, task.func, tuple(with_clocks), *args)


def _run(name: str, stage: int, member: int, is_first: bool, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, and write down when; `is_first`: what it waited for too."""
    spans = _spans.get(name)
    if spans is None:  # run again, after the measurement
        return function(*args)
    if is_first:
        spans += [Span(stage, member, True, begin, end) for begin, end in _arrivals()]
    begin = time.perf_counter()
    result = function(*args)
    _settle(result)
    spans.append(Span(stage, member, False, begin, time.perf_counter()))
    return result


def _arrivals() -> list[tuple[float, float]]:
    """When the data came that the task of this thread waited for, by the clock of its worker; nothing in process.

    The worker tells one of the tasks that wait for them; a step of a member program is told what its thread waited for.
    """
    worker_module = sys.modules.get("distributed.worker")
    if worker_module is None:
        return []
    if waits := waits_of_thread():
        return waits
    try:
        worker = worker_module.get_worker()
    except ValueError:
        return []
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None:
        return []
    return [(s["start"], s["stop"]) for s in list(task.startstops) if s["action"] != "compute"]


def _settle(result: Any) -> None:
    """Wait until a result is there: devices compute while Python goes on."""
    for array in result if isinstance(result, (tuple, list)) else (result,):
        synchronize = getattr(getattr(array, "device", None), "synchronize", None)
        if synchronize is not None:
            synchronize()


def busy_seconds(spans: Iterable[Span]) -> dict[int, float]:
    """Return by number of the stage the seconds of its busiest member: in which it computed, and in which it waited for
    data.

    Tasks that a member runs at the same time count once. What it computes while data come counts as both, as in the
    model, which hides nothing.
    """
    found: defaultdict[tuple[int, int, bool], list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        found[span.stage, span.member, span.is_transfer].append((span.start, span.stop))
    by_member: defaultdict[tuple[int, int], float] = defaultdict(float)
    for (stage, member, _), times in found.items():
        by_member[stage, member] += _covered(times)
    busiest: defaultdict[int, float] = defaultdict(float)
    for (stage, _), seconds in by_member.items():
        busiest[stage] = max(busiest[stage], seconds)
    return dict(busiest)


def _covered(times: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals.

    >>> _covered([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, end = 0.0, float("-inf")
    for first, last in sorted(times):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total
