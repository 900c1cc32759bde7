"""How much memory there is: for this process, and for the workers of a cluster."""

from __future__ import annotations

import os
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any

from distarray import config
from distarray.expr.expr import Environment

__all__ = [
    "STREAMED",
    "is_limit_set",
    "limits_to_try",
    "memory_limit",
    "n_tasks_at_once",
    "n_threads",
    "resident_nbytes",
]

_STATM = Path("/proc/self/statm")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: What is more than this part of the limit is not held as a whole, where it may as well pass through in turns.
STREAMED = 16
#: Parts of its memory at which a process of dask writes blocks to disk, and takes no more tasks.
SPILLS = 0.7
PAUSES = 0.8
#: What a process has before any block comes, and the part that blocks may have of the rest: some are under way.
PROCESS_NBYTES = 96 << 20
UNDER_WAY = 0.9
#: Where a worker has no limit, or says nothing.
_UNKNOWN = 4 << 30
#: By team: memory limit and threads of its workers.
_facts: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()


def resident_nbytes() -> int:
    """Bytes of this process in memory; 0 where the system does not say (it is read from ``/proc``)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def n_threads() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _process_memory() -> int:
    """Bytes that this process may use: the machine's, or the limit of its control group."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        total = _UNKNOWN
    for name in _CGROUP_LIMITS:
        try:
            total = min(total, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return total


def _worker_facts(env: Environment) -> tuple[int, int]:
    """The smallest memory limit and the most threads of the workers of a team, asked once per team."""
    team = env.team
    assert team is not None
    known = _facts.get(team)
    if known is None:
        workers = team.client.scheduler_info(n_workers=-1)["workers"].values()
        limit = min((w["memory_limit"] or _UNKNOWN for w in workers), default=_UNKNOWN)
        known = _facts[team] = limit, max((w["nthreads"] for w in workers), default=1)
    return known


def n_tasks_at_once(env: Environment) -> int:
    """Tasks that a member of a team runs at a time; in this process members share the threads."""
    return _worker_facts(env)[1] if env.team is not None and env.team.client is not None else 1


def is_limit_set() -> bool:
    """Whether the byte budget of a member is the configured one, and no guess: then it holds, or nothing runs."""
    return config.get("memory-limit") is not None


def limits_to_try(limit: int, *, is_worker: bool) -> tuple[int, ...]:
    """Budgets that plans are to fit, in turn: `limit` if it is configured, and more where it is half of the memory.

    Up to the first a worker writes no block to disk, at the last it pauses.
    """
    if is_limit_set():
        return (limit,)
    unspilled = int((2 * limit * SPILLS - PROCESS_NBYTES) * UNDER_WAY) if is_worker else limit
    return tuple(sorted({n for n in (min(limit, unspilled), limit, int(2 * limit * PAUSES)) if n > 0}))


def memory_limit(env: Environment) -> int:
    """Byte budget of a member: the configured one, else half of what there is for it."""
    limit = config.get("memory-limit")
    if limit is not None:
        return int(limit)
    if env.team is not None and env.team.client is not None:
        return _worker_facts(env)[0] // 2
    return _process_memory() // 2 // max(1, min(env.size, n_threads()))
