"""Exact counts of what the executors do: tasks, kernels, messages, bytes, planner calls.

`distarray.testing.counting` makes a `Counters` and hands it to the user; evaluation adds to all that are active. Counts
are made where the thing happens (tasks when they are handed to an executor, messages when they are planned), so they
hold on every executor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distarray.runtime.passes import Pass


@dataclass(eq=False)  # two that counted the same are two
class Counters:
    """Counters count tasks, messages and bytes since the start of a `counting` block.

    Attributes
    ----------
    tasks
        Tasks handed to an executor; their sum by class stands in `by_class` (tile, project, piece, combine, copy,
        and call: a function such as a file's writer called with a block).
    kernels
        Runs by operation and part: ``kernels["add", (0, 1)]``.
    transfers
        Messages between members, each with source, destination, rows and nbytes.
    planner_calls
        Plans made, the cache's answers not counted.
    evaluations
        Times that pending work was run, and of these `inline` as plain calls in this process, without tasks.
    packed_bytes
        Bytes copied into pieces.
    allocated_bytes
        Bytes of blocks that tasks made.
    fetched_bytes
        Bytes brought to this process.
    predicted_peak
        Most bytes of blocks that a member was predicted to hold, of all evaluations that were planned.
    passes
        What each evaluation by tasks amounts to.
    """

    tasks: int = 0
    by_class: Counter[str] = field(default_factory=Counter)
    kernels: Counter[tuple[str, Any]] = field(default_factory=Counter)
    transfers: list[Any] = field(default_factory=list)
    planner_calls: int = 0
    evaluations: int = 0
    inline: int = 0
    packed_bytes: int = 0
    allocated_bytes: int = 0
    fetched_bytes: int = 0
    predicted_peak: int = 0
    members: dict[Any, int] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list, repr=False)

    @property
    def messages(self) -> int:
        """Return the number of transfers."""
        return len(self.transfers)

    @property
    def rows(self) -> int:
        """Return the rows moved, summed over transfers."""
        return sum(t.rows for t in self.transfers)

    @property
    def bytes_moved(self) -> int:
        """Return the bytes moved, summed over transfers."""
        return sum(t.nbytes for t in self.transfers)


active: list[Counters] = []


def count_evaluation(*, is_inline: bool) -> None:
    """Count that pending work is run; `is_inline`: as plain calls in this process."""
    for c in active:
        c.evaluations += 1
        c.inline += is_inline


def count_tasks(kind: str, n: int) -> None:
    """Count tasks of one class that are handed to an executor."""
    for c in active:
        c.tasks += n
        c.by_class[kind] += n


def count_fetched(nbytes: int) -> None:
    """Count bytes that are brought to this process."""
    for c in active:
        c.fetched_bytes += nbytes


@contextmanager
def counting() -> Iterator[Counters]:
    """Count everything that happens in a block, in all threads.

    Yields
    ------
    Counters
        Grows while the block runs, and stays after it.
    """
    counters = Counters()
    active.append(counters)
    try:
        yield counters
    finally:
        active.remove(counters)
