"""The members of an environment: what runs their tasks, and the devices that they have."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from distarray.expr.expr import Environment
from distarray.forks import free_in_child
from distarray.kernels.inside import is_inside_task
from distarray.runtime.clients import placement_of

#: Held by the one thread that plans and evaluates.
LOCK = free_in_child(threading.RLock())


def locked() -> AbstractContextManager[object]:
    """Hold `LOCK` for a ``with`` block, so that one thread at a time plans and evaluates; nothing inside a task.

    What a task computes is its own and no other thread's, and whoever waits for the task may hold the lock.
    """
    return nullcontext() if is_inside_task() else LOCK


def executor_for(env: Environment) -> Any:
    """Return what runs tasks on the workers of a team of a cluster: a `cluster.ClusterExecutor`."""
    assert env.is_cluster
    assert env.team is not None
    client = env.team.client
    # By client, then by team: two clients of one cluster make equal teams.
    by_team = placement_of(client).executors
    executor = by_team.get(env.team)
    if executor is None:
        from distarray.runtime.cluster import ClusterExecutor

        with locked():  # two would have two records of what workers hold
            executor = by_team.get(env.team)
            if executor is None:
                executor = by_team[env.team] = ClusterExecutor(client, env.team)
    return executor


def device_labels(env: Environment) -> tuple[str, ...]:
    """Return the device string of each member, in rank order; those of workers are asked of them."""
    if env.is_cluster:
        labels: tuple[str, ...] = executor_for(env).labels(env.device)
        return labels
    from distarray.kernels.devices import backend_for

    return tuple(backend_for(env.device, rank).label for rank in range(env.size))


def check_device(env: Environment) -> None:
    """Check that the members of an environment can make blocks on its device; asked once per team and device.

    Raises
    ------
    ValueError
        If it is no device string, or there is no such device.
    ImportError, RuntimeError
        If CuPy, a GPU or array_api_strict is missing: of a cluster, on a worker.
    """
    from distarray.kernels.devices import check_here, parse_device

    parse_device(env.device)
    if not env.is_cluster:
        return check_here(env.device)
    executor = executor_for(env)
    if env.device not in executor.checked:
        executor.check_device(env.device)
        executor.checked.add(env.device)
    return None
