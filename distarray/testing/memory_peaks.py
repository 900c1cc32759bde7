"""The most memory that each member used in a block of a program: bytes of blocks as counted there, and resident memory.

The two say different things. Blocks are what plans are made of, counted to the byte: on a cluster what a worker has in
store and on its way to it, in this process what tasks returned and somebody still holds. The resident memory is all
that a process uses, kernels' own arrays and the interpreter's included; it is looked at every few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distarray.arguments import shown
from distarray.array.environment import environment
from distarray.diagnostics.resident import watch_peak
from distarray.runtime.metering import metering

__all__ = ["Peak", "peaks"]


@dataclass(frozen=True, slots=True)
class Peak:
    """A Peak is what one member used at most.

    Parameters
    ----------
    before
        Bytes of its blocks at the start; in this process of those that were read.
    blocks
        Most bytes of its blocks at any time, those at the start included.
    resident
        Most bytes by which the memory in use of its process grew; members that are threads share it. 0 where the system
        does not say.
    """

    before: int
    blocks: int
    resident: int


@contextmanager
def peaks(client: Any = None) -> Iterator[dict[Any, Peak]]:
    """Measure the memory of each member during a ``with`` block.

    Parameters
    ----------
    client
        Whose workers are measured; by default the client of the current team, and this process where there is none.

    Yields
    ------
    dict of Peak
        By the address of the worker, or by the rank of a member that is a thread of this process (0 if no task ran):
        filled at the end of the block. What is still being computed then is not in it.

    Examples
    --------
    >>> import distarray as dx
    >>> team = dx.Team((2,), ("W",))
    >>> x = dx.ones((512, 1024), team=team, sharding=("W", None)).persist()
    >>> with dx.testing.peaks() as found:
    ...     y = (x * 2.0).persist()
    >>> [(p.before, p.blocks) for _, p in sorted(found.items())]
    [(2097152, 4194304), (2097152, 4194304)]
    """
    if client is not None and not hasattr(client, "run"):
        raise TypeError(f"client={shown(client)} must be a client of a cluster, not {type(client).__name__}")
    if client is None and (team := environment().team) is not None:
        client = team.client
    found: dict[Any, Peak] = {}
    with watch_peak(client) as resident, metering(client) as counts:
        yield found
    for member in counts or ([0] if client is None else []):
        count = counts.get(member)
        growth = resident.by_member.get(None if client is None else member, 0)
        found[member] = Peak(0, 0, growth) if count is None else Peak(count.before, count.most, growth)
