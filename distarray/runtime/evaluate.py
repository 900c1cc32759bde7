"""Evaluation: from pending nodes to stored blocks, in one atomic step.

`evaluate` collects what its targets need, keeps the results of all nodes that a live handle still refers to, and goes
one of two ways: arrays that are one small block each are plain calls (`interpret`); everything else is planned (or
its plan is found in the cache), lowered to tasks and handed to the executor of its team. Memos are set only when all of
it is submitted, so an interrupt leaves everything as it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from distarray import config
from distarray.errors import BlocksLostError
from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr, Stored, postorder
from distarray.kernels.devices import backend_for, check_here, parse_device
from distarray.kernels.inside import is_inside_task
from distarray.kernels.interpret import NEW, interpret
from distarray.kernels.reporting import warnings_gathered
from distarray.runtime import counters
from distarray.runtime.clients import n_threads, placement_of
from distarray.runtime.donation import donated, kept
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.promised import make_here
from distarray.runtime.rehome import healed, revive
from distarray.runtime.retention import result_nbytes, retained
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = [
    "blocks_of",
    "check",
    "check_device",
    "device_labels",
    "evaluate",
    "executor_for",
    "fetch",
    "fetch_blocks",
    "futures_of",
    "is_small",
    "locked",
    "state_of",
    "wait_for",
    "waiter",
]

LOCK = threading.RLock()


def locked() -> AbstractContextManager[object]:
    """Hold `LOCK` for a ``with`` block, so that one thread at a time plans and evaluates; nothing inside a task.

    What a task computes is its own and no other thread's, and whoever waits for the task may hold the lock.
    """
    return nullcontext() if is_inside_task() else LOCK


_executors: dict[int, Any] = {}

#: Called when blocks that are waited for turn out to have failed on a cluster; the array layer assigns it.
on_failure: Callable[[], None] | None = None

#: Bytes up to which a result that was fetched from a cluster stays in this process.
STAYS_NBYTES = 64 << 10


def executor_for(env: Environment) -> Any:
    """The executor of a team: the cluster's, or the threads of this process."""
    if env.is_cluster:
        assert env.team is not None
        client = env.team.client
        # By client, then by team: two clients of one cluster make equal teams.
        by_team = placement_of(client).executors
        executor = by_team.get(env.team)
        if executor is None:
            from distarray.runtime.cluster import ClusterExecutor

            executor = by_team[env.team] = ClusterExecutor(client, env.team)
        return executor
    size = 1 if env.team is None or is_inside_task() else min(env.team.size, n_threads())
    executor = _executors.get(size)
    if executor is None:
        from distarray.runtime.executors import ThreadExecutor

        executor = _executors[size] = ThreadExecutor(size)
    return executor


def device_labels(env: Environment) -> tuple[str, ...]:
    """The device string of each member, in rank order; those of workers are asked of them."""
    if env.is_cluster:
        labels: tuple[str, ...] = executor_for(env).labels(env.device)
        return labels
    return tuple(backend_for(env.device, rank).label for rank in range(env.size))


def check_device(env: Environment) -> None:
    """Whether the members of an environment can make blocks on its device; asked once per team and device.

    Raises
    ------
    ValueError
        If it is no device string, or there is no such device.
    ImportError, RuntimeError
        If CuPy, a GPU or array_api_strict is missing: of a cluster, on a worker.
    """
    parse_device(env.device)
    if not env.is_cluster:
        return check_here(env.device)
    executor = executor_for(env)
    if env.device not in executor.checked:
        executor.check_device(env.device)
        executor.checked.add(env.device)
    return None


if hasattr(os, "register_at_fork"):  # pools of threads do not survive a fork
    os.register_at_fork(after_in_child=_executors.clear)


# ------------------------------------------------------------------------------------------------- evaluate


def evaluate(targets: Sequence[Expr], others: Callable[[], Iterable[Expr] | None] = tuple) -> None:
    """Compute `targets`, and keep the results of all that they need and a live handle refers to.

    Parameters
    ----------
    targets
        Nodes; afterwards each has a memo.
    others
        Pending nodes that live handles refer to, anywhere: what they need is not overwritten. None: that cannot be
        told, and nothing is overwritten, since another thread is making a node. Called only if a write in place is
        possible.

    Raises
    ------
    Exception
        What a kernel raised, of its own class, with the operation and the user's line in its notes. Nothing is
        changed then.
    """
    make_here(targets)
    with locked(), nullcontext() if is_inside_task() else warnings_gathered():
        if crossing.are_pending():
            # Rare: who moves no arrays does not load it.
            from distarray.runtime import crossings

            crossings.settle(targets, others)
        by_env: dict[Environment, list[Expr]] = {}
        for t in targets:
            if t.memo is None:
                by_env.setdefault(t.env, []).append(t)
        for env, group in by_env.items():
            _evaluate(env, group, others)


def check(targets: Sequence[Expr]) -> None:
    """Check that members can hold what computing `targets`, of one environment, needs; nothing runs.

    Raises
    ------
    MemoryBudgetError
        If they cannot.
    """
    if crossing.levels(targets):
        from distarray.runtime import crossings

        with locked():
            return crossings.check(targets)
    env, order = targets[0].env, postorder(targets)
    if is_small(order, env):
        return None
    from distarray.runtime import planned

    with locked():
        return planned.check(env, order, {id(t) for t in targets})


def _evaluate(env: Environment, targets: Sequence[Expr], others: Callable[[], Iterable[Expr] | None]) -> None:
    order = postorder(targets)
    aimed = {id(t) for t in targets}
    wanted = aimed | retained([n for n in order if n.memo is None and id(n) not in aimed], env)
    for c in counters.active:
        c.evaluations += 1
    if is_small(order, env):
        free = donated(order, wanted, others)
        with interrupts_deferred() if free else nullcontext():
            values = interpret(order, wanted, free)
            mesh = env.mesh
            results = []
            for node in order:
                value = values.get(id(node))
                if value is not None and node.memo is None:
                    several = isinstance(value, tuple)
                    whole = _whole(mesh, 0 if several else len(node.shape))
                    results.append((node, Stored(whole, value if several else (value,), True, False)))
            if len(results) == 1 and results[0][0].op.kind in NEW and not free:
                results[0][0].settle(results[0][1])  # no other array can have its block
            else:
                kept(results, order, free)
        for c in counters.active:
            c.inline += 1
        return
    if env.is_cluster:
        healthy = healed(order, env)
        if healthy is not env:
            _evaluate(healthy, targets, others)
            return
    # Planning and lowering are imported when they are first needed: small arrays never need them.
    from distarray.runtime import planned

    planned.run(env, order, wanted, others)


@lru_cache(maxsize=256)
def _whole(mesh: Mesh, ndim: int) -> Sharding:
    return Sharding.whole(mesh, ndim)


def is_small(order: Sequence[Expr], env: Environment) -> bool:
    """Whether every array is one block of at most ``block-bytes`` in this process: then there is nothing to plan."""
    if env.device != "cpu":
        return False
    limit = config.get("block-bytes")
    in_process = not env.is_cluster
    for node in order:
        memo = node.memo
        if memo is not None:
            if node.pin is not None and memo.on_client and node.pin.n_tiles > 1:
                return False  # to be placed as the user asked
            if not memo.on_client and not (in_process and memo.sharding.n_tiles == 1):
                return False
            if type(memo.blocks[0]) is not np.ndarray:
                return False
        elif node.pin is not None and (node.pin.n_tiles > 1 or not in_process):
            return False
        if type(node.dtype) is tuple:
            if result_nbytes(node) > limit:
                return False
        else:
            n = node.dtype.itemsize
            for s in node.shape:
                n *= s
            if n > limit and node.op.kind != "get":
                return False
    return True


# ---------------------------------------------------------------------------------------------- observations


def blocks_of(node: Expr) -> Sequence[Any]:
    """The stored blocks of an evaluated node, row-major: arrays in process, Futures on a cluster."""
    assert node.memo is not None
    return node.memo.blocks


def fetch(node: Expr) -> np.ndarray[Any, Any]:
    """An evaluated node as one host array that the caller owns."""
    memo = node.memo
    assert memo is not None
    for c in counters.active:
        c.fetched_bytes += node.nbytes
    if memo.on_client:
        return np.array(memo.blocks[0], copy=True)
    tiles = list(memo.sharding.tiles())
    found = fetch_blocks(node, range(len(tiles)))
    if len(tiles) == 1:
        if node.memo is memo and node.env.is_cluster and node.env.device == "cpu" and node.nbytes <= STAYS_NBYTES:
            # what is small and was brought here stays here, and travels with the plans that use it
            node.memo = Stored(memo.sharding, (found[0],), on_client=True)
        return np.array(found[0], copy=True)
    out = np.empty(node.shape, node.dtype)
    for t, block in zip(tiles, found, strict=True):
        out[memo.sharding.tile_slices(node.shape, t)] = block
    return out


def _futures_by_environment(nodes: Iterable[Expr]) -> dict[Environment, list[Any]]:
    """The Futures of evaluated nodes, in their order; none of what is in this process."""
    found: dict[Environment, list[Any]] = {}
    for node in nodes:
        if node.memo is not None and node.env.is_cluster and not node.memo.on_client:
            found.setdefault(node.env, []).extend(b for b in node.memo.blocks if not isinstance(b, np.ndarray))
    return found


def waiter(nodes: Iterable[Expr]) -> Callable[[], None] | None:
    """What waits for the blocks of evaluated nodes, and keeps none of those that are there; None if all are here."""
    by_env = {env: set(futures) for env, futures in _futures_by_environment(nodes).items()}
    for futures in by_env.values():
        for future in list(futures):
            future.add_done_callback(futures.discard)
    if not by_env:
        return None

    def wait() -> None:
        for env, futures in by_env.items():
            executor_for(env).wait(list(futures))

    return wait


def futures_of(nodes: Iterable[Expr]) -> list[Any]:
    """The Futures of evaluated nodes; none of what is in this process."""
    return [future for futures in _futures_by_environment(nodes).values() for future in futures]


def wait_for(nodes: Iterable[Expr], *, told: bool = True) -> None:
    """Wait until the blocks of evaluated nodes are there; `told`: a failure is told to `on_failure`."""
    try:
        for env, futures in _futures_by_environment(nodes).items():
            executor_for(env).wait(futures)
    except Exception:
        if told:
            _tell_of_failure()
        raise


def _tell_of_failure() -> None:
    if on_failure is not None:
        on_failure()


def state_of(node: Expr) -> str:
    """What is known of the blocks of an evaluated node: ``"finished"``, ``"pending"`` or ``"failed"``; asks nobody."""
    memo = node.memo
    assert memo is not None
    if memo.on_client or not node.env.is_cluster:
        return "finished"
    states = {getattr(b, "status", "pending") for b in memo.handles if not isinstance(b, np.ndarray)}
    return "finished" if states <= {"finished"} else "failed" if states & {"error", "cancelled"} else "pending"


def fetch_blocks(node: Expr, numbers: Iterable[int]) -> list[np.ndarray[Any, Any]]:
    """Some blocks of an evaluated node as host arrays; not copied where they are in this process."""
    memo = node.memo
    assert memo is not None
    numbers = list(numbers)
    blocks = [memo.blocks[i] for i in numbers]
    if node.env.is_cluster and not memo.on_client:
        remote = [i for i, b in enumerate(blocks) if not isinstance(b, np.ndarray)]
        try:
            executor, futures = executor_for(node.env), [blocks[i] for i in remote]
            if node.env.device != "cpu":
                ranks = [memo.sharding.member(tile) for tile in memo.sharding.tiles()]
                futures = executor.on_host(futures, [ranks[numbers[i]] for i in remote], node.env.device)
            arrived = executor.fetch(futures)
        except BlocksLostError:
            if not revive(node):
                _tell_of_failure()
                raise
            evaluate((node,))
            whole, tiles = fetch(node), list(memo.sharding.tiles())
            return [whole[memo.sharding.tile_slices(node.shape, tiles[i])] for i in numbers]
        except Exception:
            _tell_of_failure()
            raise
        for i, b in zip(remote, arrived, strict=True):
            blocks[i] = b
    return [b if isinstance(b, np.ndarray) else backend_for(node.env.device, 0).to_host(b) for b in blocks]
