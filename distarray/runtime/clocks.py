"""Clocks around tasks: they write down when a task ran and what it waited for, in the process in which it runs.

Nobody who does not measure pays for it: tasks have clocks only while `task_times.measuring` is entered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from dask._task_spec import Task

from distarray.forks import free_in_child
from distarray.kernels import tasks
from distarray.kernels.inside import is_inside_task
from distarray.lazy import loaded
from distarray.lower.messages import Key
from distarray.lower.step_graph import KernelCall
from distarray.lower.template import Lowered
from distarray.runtime.execution import waits_of_thread


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
CURRENT: ContextVar[str | None] = ContextVar("distarray_measurement", default=None)
#: What was written down in this process, by name of the measurement.
_spans: dict[str, list[Span]] = {}
_lock = free_in_child(threading.Lock())


def start(name: str) -> None:
    """Begin to write down spans in this process; workers that share a process share them."""
    with _lock:
        _spans.setdefault(name, [])


def stop(name: str) -> list[Span]:
    """Return what was written down in this process; nothing if another call has it already."""
    with _lock:
        return _spans.pop(name, [])


def measurement() -> str | None:
    """Return the name of the measurement that what this thread evaluates belongs to; None if it does not measure."""
    # What runs inside a task belongs to the stage of the task.
    return None if is_inside_task() else CURRENT.get()


def timed(lowered: Lowered) -> Mapping[Key, Task]:
    """Return the tasks of an evaluation: with clocks while this thread measures, else as they are.

    Each of several tasks that were fused to one (`fuse`) has a clock of its own: its time is that of its own stage,
    whatever the key of the one task. What that waits for counts for the stage of the first of them.
    """
    name = measurement()
    if name is None:
        return lowered.tasks
    return {
        key: Task(key, function, *args)
        for key, task in lowered.tasks.items()
        for function, args in (_with_clock(name, key, task.func, task.args, lowered.members[key]),)
    }


def with_clocks(steps: list[KernelCall], members: Iterable[int], name: str | None) -> list[KernelCall]:
    """Return steps of these members with clocks around them, if there is a measurement."""
    if name is None:
        return steps
    return [
        KernelCall(step.key, *_with_clock(name, step.key, step.function, step.args, member))
        for step, member in zip(steps, members)
    ]


def _with_clock(
    name: str, key: Key, function: Callable[..., Any], args: Sequence[Any], member: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of a task that writes down when it runs, and its arguments."""
    return tasks.wrapped(key, function, args, lambda key, n, call: partial(_run, name, key[1], member, n == 0, call))


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
    """Return when the data came that the task of this thread waited for, by the clock of its worker; nothing in
    process.

    The worker tells one of the tasks that wait for them; a step of a member program is told what its thread waited for.
    """
    worker_module = loaded("distributed.worker")
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
