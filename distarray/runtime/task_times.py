"""When tasks ran, stage by stage: what ``explain(analyze=True)`` measures.

The clocks of the tasks (`clocks`) write down spans where these run, in this process or in those of a cluster's workers;
`measuring` collects them at its end.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from distarray.runtime.clients import asked
from distarray.runtime.clocks import CURRENT, Span, start, stop


@contextmanager
def measuring(client: Any = None) -> Iterator[list[Span]]:
    """Measure what this thread evaluates on the workers of a Dask client, or in this process.

    Yields
    ------
    list of Span
        Filled at the end of the block. Whoever evaluates has to wait for the results in the block.
    """
    name = uuid.uuid4().hex
    asked(client, start, name)
    token = CURRENT.set(name)
    found: list[Span] = []
    try:
        yield found
    finally:
        CURRENT.reset(token)
        for spans in asked(client, stop, name).values():
            found += spans


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
