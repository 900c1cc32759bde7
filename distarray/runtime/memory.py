"""How much memory there is: for this process, and for the workers of a cluster."""

from __future__ import annotations

import os
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from distarray import config, hooks
from distarray.expr.expr import Environment
from distarray.kernels.buffers import POOL, resident_nbytes
from distarray.kernels.devices import device_nbytes, n_devices
from distarray.planner.plan import UNBOUNDED
from distarray.runtime.clients import n_threads, placement_of, process_threads
from distarray.runtime.connections import is_open
from distarray.runtime.wire import SMALL_PARTS

_MEMINFO = Path("/proc/meminfo")
#: By version of control groups: what a group may have, what it has, and where it says what of that are cached files.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
#: Times that a member may have an array at most: as it lies, as it is sent, as it arrives, and copied for its loss.
COPIES = 4
#: What is more than this part of the limit is not held as a whole, where it may as well pass through in turns.
STREAMED = 16
#: Parts of its memory at which a process of dask writes blocks to disk, and takes no more tasks.
SPILLS = 0.7
PAUSES = 0.8
#: Part at which its nanny ends it, and the part that may be on its way to it at a time.
TERMINATES = 0.95
TRANSFERS = 0.1
#: What a process has before any block comes, and the part that blocks may have of the rest: some are under way.
PROCESS_NBYTES = 96 << 20
UNDER_WAY = 0.9
#: Into which BLAS packs operands of products, at most, for each thread that calls it: for the first it is in the above.
PACKED_NBYTES = 16 << 20
#: What a worker has at least that compiles: Numba takes an eighth of it.
COMPILER_NBYTES = 1 << 30
#: Where a worker has no limit, or says nothing.
_UNKNOWN = 4 << 30
#: By team: what is known of its workers.
_facts: weakref.WeakKeyDictionary[Any, _Workers] = weakref.WeakKeyDictionary()


@lru_cache(maxsize=1)
def _process_memory() -> int:
    """Return the bytes that this process may use: the machine's, or the limit of its control group."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        total = _UNKNOWN
    return min([total, *[limit for limit, _ in _cgroups()]])


def _cgroups() -> list[tuple[int, int]]:
    """Return what the control groups of this process may have, and what they have that is no cached file."""
    found = []
    for limit, used, details in _CGROUPS:
        try:
            most, now = int(Path(limit).read_text()), int(Path(used).read_text())
            lines = dict(line.split()[:2] for line in Path(details).read_text().splitlines())
            files = int(lines.get("total_inactive_file", lines.get("inactive_file", "0")))
            found.append((most, max(0, now - files)))
        except (OSError, ValueError):
            continue
    return found


def available_nbytes() -> int:
    """Return the bytes that this process may still have: what the machine has free, or its control group. Some 50
    us.
    """
    free = _process_memory()
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        pass
    return min([free, *[max(0, limit - used) for limit, used in _cgroups()]])


def room_nbytes(env: Environment) -> int:
    """Return the bytes that all members of an environment may ever hold together: their budgets, or all the memory
    there is.
    """
    if is_limit_set(env):
        return memory_limit(env) * env.size
    if env.is_cluster:
        return (_worker_facts(env).limit or _UNKNOWN) * env.size
    return _process_memory()


class _Workers(NamedTuple):
    """_Workers are the workers of a team.

    Parameters
    ----------
    limit
        The smallest memory limit; None if none has one.
    n_threads
        The most threads.
    process
        The most bytes that a process has beside blocks.
    """

    limit: int | None
    n_threads: int
    process: int

    @property
    def packed(self) -> int:
        """Return the bytes that BLAS may have of the memory of each beside what its process has in any case."""
        return (self.n_threads - 1) * PACKED_NBYTES


class Room(NamedTuple):
    """A Room is what blocks may have of the memory of a worker, by what dask does when it fills up.

    Parameters
    ----------
    held
        Bytes of all blocks, so that the worker never pauses.
    made
        Bytes that tasks make at a time while blocks lie on disk: what is between the part of the memory at which dask
        begins to write, and that at which it ends the process, less what may arrive meanwhile.
    """

    held: int
    made: int

    def excess(self, made: int, used: int) -> int:
        """Return the bytes above it of what tasks make at a time while blocks lie on disk, and read and make."""
        return max(0, made - self.made) + max(0, used - self.held)


def bundle_nbytes(env: Environment) -> int:
    """Return the bytes of blocks that a worker keeps under one key at most: a small part of its memory, if that is
    limited, since dask takes them to disk and back as a whole.
    """
    limit = _worker_facts(env).limit if env.is_cluster else None
    return UNBOUNDED if limit is None else limit // SMALL_PARTS


def process_nbytes(dask_worker: Any) -> int:
    """Return the bytes that the process of a worker has in memory beside blocks and idle buffers."""
    return max(0, resident_nbytes() - POOL.idle_nbytes - int(dask_worker.state.nbytes))


def room_of(env: Environment) -> Room | None:
    """Return the room for blocks at each worker of a team; None where there is no limit that anybody would act on."""
    if not env.is_cluster:
        return None
    workers = _worker_facts(env)
    if workers.limit is None:
        return None
    held = int(workers.limit * PAUSES) - workers.process
    return Room(max(0, held), int(workers.limit * (TERMINATES - SPILLS - TRANSFERS)))


def _worker_facts(env: Environment) -> _Workers:
    """Return what is known of the workers of a team, asked once per team."""
    team = env.team
    assert team is not None
    known = _facts.get(team)
    if known is None:
        if not is_open(team.client):
            return _Workers(None, 1, PROCESS_NBYTES)  # nothing will run there
        workers = team.client.scheduler_info(n_workers=-1)["workers"].values()
        limit = min((w["memory_limit"] for w in workers if w["memory_limit"]), default=None)
        in_use = {} if limit is None else placement_of(team.client).ask(process_nbytes)
        n_threads = max((w["nthreads"] for w in workers), default=1)
        known = _Workers(limit, n_threads, max([*in_use.values(), PROCESS_NBYTES]))
        if workers:  # else they are on their way
            _facts[team] = known
    return known


def n_tasks_at_once(env: Environment) -> int:
    """Return the tasks that a member of a team runs at a time; in this process members share the threads."""
    return _worker_facts(env).n_threads if env.is_cluster else 1


def n_threads_of(env: Environment) -> int:
    """Return the threads that a member of a cluster has, or this process for all members."""
    return n_tasks_at_once(env) if env.is_cluster else process_threads(env)


def limit_option(env: Environment) -> str | None:
    """Return the name of the option that says what members may hold; None if none is set for their device."""
    if env.device.startswith("cuda") and config.get("device-memory-limit") is not None:
        return "device-memory-limit"
    return None if config.get("memory-limit") is None else "memory-limit"


def is_limit_set(env: Environment) -> bool:
    """Return whether the user said what a member may hold: then no plan may exceed it."""
    return limit_option(env) is not None


def limits_to_try(env: Environment) -> tuple[int, ...]:
    """Return the budgets that plans are to fit, in turn: the limit if it is configured, and more where it is half of
    the memory.

    Up to the first a worker writes no block to disk, at the last it pauses.
    """
    limit, is_worker = memory_limit(env), env.is_cluster
    if is_limit_set(env):
        return (limit,)
    unspilled = int((2 * limit * SPILLS - PROCESS_NBYTES) * UNDER_WAY) if is_worker else limit
    unpaused = int(2 * limit * PAUSES) - (PROCESS_NBYTES if is_worker else 0)
    return tuple(sorted({n for n in (min(limit, unspilled), limit, unpaused) if n > 0}))


def memory_limit(env: Environment) -> int:
    """Return the byte budget of a member: the configured one, else half of what there is for it."""
    option = limit_option(env)
    if option is not None:
        return int(config.get(option))
    if env.is_cluster:
        workers = _worker_facts(env)
        limit = workers.limit or _UNKNOWN
        return max(limit // 4, (limit - workers.packed) // 2)
    if n_gpus := n_devices(env.device):
        return device_nbytes(env.device) // 2 // -(-env.size // n_gpus)
    return _process_memory() // 2 // max(1, min(env.size, n_threads()))


def may_compile() -> bool:
    """Return whether this process compiles programs: the option says so, and a worker has memory for a compiler."""
    return bool(config.get("compiled")) and (POOL.memory is None or POOL.memory >= COMPILER_NBYTES)


hooks.may_compile = may_compile
