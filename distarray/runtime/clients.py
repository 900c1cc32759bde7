"""Clients: the one that is active, what each knows of its workers, and the teams that stand for these.

Whoever imports distarray loads this module, and most have no cluster: nothing here imports distributed or asyncio until
a client exists.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from distarray.arguments import shown
from distarray.errors import ShardingError
from distarray.expr.expr import Environment
from distarray.forks import free_in_child, in_child
from distarray.kernels.inside import is_inside_task, is_on_worker
from distarray.lazy import loaded
from distarray.runtime.connections import await_start, check_synchronous, gone, is_open
from distarray.sharding.team import Team
from distarray.weak import alive

if TYPE_CHECKING:
    from distarray.runtime.placement import Placement

T = TypeVar("T")


@cache
def n_threads() -> int:
    """Return the cores that this process may use, as they are when somebody asks first."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def process_threads(env: Environment) -> int:
    """Return the threads of this process that serve an environment without a cluster: its members share them."""
    return 1 if env.team is None or is_inside_task() else min(env.team.size, n_threads())


def active_client() -> Any:
    """Return the active Dask client of this thread, or None where there is none.

    Inside a task there is none: what a task computes stays on its worker. Costs a dictionary look-up when distributed
    was never imported (it is not imported here).

    Returns
    -------
    distributed.Client or None

    Raises
    ------
    RuntimeError
        If it is asynchronous.
    ClusterGoneError
        If it has lost its scheduler, and tries to find it again.
    """
    distributed = loaded("distributed.client")
    if distributed is None or is_on_worker():
        return None
    client = distributed._get_global_client()
    if client is None or client.status in ("closing", "closed"):
        return None
    # Before it is asked whether it runs: nobody may have awaited it yet.
    check_synchronous(client)
    if client.status != "running":
        await_start(client)
    if client.status == "connecting":
        raise gone(client)
    return client if client.status == "running" else None


#: What holds what belongs to a client is the client itself: a registry would keep it alive, whose values refer to it.
_ATTRIBUTE = "_distarray_placement"
_clients: weakref.WeakSet[Any] = weakref.WeakSet()
_placements_lock = free_in_child(threading.Lock())


def _forget_all() -> None:
    for client in alive(_clients):
        client.__dict__.pop(_ATTRIBUTE, None)


in_child(_forget_all)  # a forked process has no event loop that could use the parent's placements


def placement_of(client: Any) -> Placement:
    """Return the placement of a client: one object per connection, made when first asked for (a few milliseconds).

    Raises
    ------
    ClusterGoneError
        If the client is closed, or has lost its scheduler.
    """
    placement: Placement | None = client.__dict__.get(_ATTRIBUTE)
    if placement is None or placement.comm is not client.scheduler_comm:
        await_start(client)
        if not is_open(client):
            raise gone(client)
        from distarray.runtime.placement import (
            Placement,  # brings in asyncio, which those without a client need not load
        )

        with _placements_lock:
            placement = client.__dict__.get(_ATTRIBUTE)
            if placement is None or placement.comm is not client.scheduler_comm:
                placement = client.__dict__[_ATTRIBUTE] = Placement(client)
                _clients.add(client)
    return placement


def asked(client: Any, function: Callable[..., T], *args: Any) -> dict[Any, T]:
    """Return what a function gives on each worker of a client, by address; without one in this process, by None."""
    return {None: function(*args)} if client is None else placement_of(client).ask(function, *args)


def keep_what_reads(place: str) -> None:
    """See to it that blocks on clusters which were made of what lies in a place are not made of it again, and wait for
    it: it is about to be written, and where a worker is lost then, copies of them are read.

    Parameters
    ----------
    place
        The absolute path of a file or folder, or an URL.
    """
    for client in alive(_clients):
        placement = client.__dict__.get(_ATTRIBUTE)
        if placement is not None and placement.lineage is not None and is_open(client):
            placement.lineage.keep_what_reads(place)


def has_blocks(client: Any) -> bool:
    """Return whether workers have blocks of arrays that this process holds; nobody is asked."""
    placement: Placement | None = client.__dict__.get(_ATTRIBUTE)
    return placement is not None and placement.lineage is not None and placement.lineage.has_blocks


def team_for_client(client: Any) -> Team:
    """Return the team of the workers that a client has now, one axis ``"x"``.

    It is the same object for as long as the workers are the same; one that was lost is a member for as long as
    ``worker-timeout``, so that it may come back to what it had.

    Parameters
    ----------
    client
        A running, synchronous ``distributed.Client``. Its first worker is asked for, and waited for.
    """
    return placement_of(client).team()


def resolve_members(client: Any, size: int | None) -> tuple[Any, tuple[Any, ...]]:
    """Return the members of a new team: homes of the client named, or of the active one; without any, threads of this
    process.

    What `hooks.resolve_members` calls. `size` None: all of them.
    """
    client = active_client() if client is None else client
    if client is None:
        return None, tuple(range(n_threads() if size is None else size))
    if not hasattr(client, "scheduler_comm"):
        raise TypeError(f"client={shown(client)} must be a distributed.Client, not {type(client).__name__}")
    members = placement_of(client).members(1 if size is None else size)
    if size is None:
        return client, members
    if len(members) < size:
        raise ShardingError(
            f"a team of {size} members was asked for; {client!r} has {len(members)} workers; add some, and wait for "
            f"them with client.wait_for_workers({size})"
        )
    return client, members[:size]


def check_members(team: Team) -> None:
    """Check that the members of a team on a cluster can be workers: one that is gone, or not there yet, may come.

    Raises
    ------
    ShardingError
        If one is no address.
    """
    odd = [m for m in team.members if not (isinstance(m, str) and "://" in m)] if team.client is not None else []
    if odd:
        raise ShardingError(
            f"member {odd[0]!r} of {team} is no address of a worker; write those that {team.client!r}.nthreads() lists"
        )


def known_following(arrived: Team) -> Team:
    """Return the team that follows the cluster here, if it is the one that arrived; else the one that arrived.

    Nobody is asked: a team is settled wherever an array is first used. It is a hook of `distarray.sharding.team`.
    """
    placement: Placement | None = arrived.client.__dict__.get(_ATTRIBUTE) if arrived.client is not None else None
    known = None if placement is None else placement._team
    return known if known is not None and known == arrived else arrived
