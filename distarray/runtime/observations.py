"""What is seen of evaluated nodes: their values, whether their blocks are there, and waiting for these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from distarray.errors import BlocksLostError
from distarray.expr.expr import Environment, Expr, Stored, holding
from distarray.runtime import counters
from distarray.runtime.evaluate import evaluate
from distarray.runtime.members import executor_for
from distarray.runtime.reading import STAYS_NBYTES, read_blocks, tell_of_failure
from distarray.runtime.rehome import revive


def fetch(node: Expr) -> np.ndarray[Any, Any]:
    """Return an evaluated node as one host array that the caller owns."""
    memo = node.stored
    counters.count_fetched(node.nbytes)
    if memo.on_client or memo.home_copy is not None:
        return np.array(memo.here, copy=True)
    tiles = list(memo.sharding.tiles())
    found = fetch_blocks(node, range(len(tiles)))
    if len(tiles) == 1:
        is_small = node.env.device == "cpu" and node.nbytes <= STAYS_NBYTES
        is_free = not (memo.sharding.is_copied or memo.is_named)
        if node.memo is memo and node.env.is_cluster and is_small and is_free:
            # what is small and was brought here stays here, and travels with the plans that use it
            node.memo = Stored(memo.sharding, (found[0],), on_client=True)
        return np.array(found[0], copy=True)
    out = np.empty(node.shape, node.dtype)
    for t, block in zip(tiles, found, strict=True):
        memo.sharding.tile_of(out, t)[...] = block
    return out


def fetch_into(node: Expr, out: np.ndarray[Any, Any]) -> None:
    """Write an evaluated node into a host array of its shape, one block after the other; blocks of this process that
    share memory with it are copied first.
    """
    memo = node.stored
    here = [b for b in memo.blocks if isinstance(b, np.ndarray)]
    if memo.on_client or any(np.may_share_memory(b, out) for b in here):
        np.copyto(out, fetch(node) if len(here) > 1 else here[0], casting="unsafe")  # of one, numpy sees the overlap
        return
    counters.count_fetched(node.nbytes)
    for i, t in enumerate(memo.sharding.tiles()):
        (block,) = fetch_blocks(node, (i,))
        np.copyto(memo.sharding.tile_of(out, t), block, casting="unsafe")


def fetch_blocks(node: Expr, numbers: Iterable[int]) -> list[np.ndarray[Any, Any]]:
    """Return some blocks of an evaluated node as host arrays; what is lost and can be had again is made again."""
    memo, wanted = node.stored, list(numbers)
    try:
        return read_blocks(node, wanted)
    except BlocksLostError:
        if not revive(node):
            tell_of_failure()
            raise
    evaluate((node,))
    whole, tiles = fetch(node), list(memo.sharding.tiles())
    return [memo.sharding.tile_of(whole, tiles[i]) for i in wanted]


def _futures_by_environment(nodes: Iterable[Expr]) -> dict[Environment, list[Any]]:
    """Return the Futures of evaluated nodes, in their order; none of what is in this process."""
    found: dict[Environment, list[Any]] = {}
    for node in nodes:
        if node.memo is not None and node.env.is_cluster and not node.memo.on_client:
            found.setdefault(node.env, []).extend(b for b in node.memo.held if not isinstance(b, np.ndarray))
    return found


def waiter(nodes: Iterable[Expr]) -> Callable[[], None] | None:
    """Return what waits for the blocks of evaluated nodes, and keeps none of those that are there; None if all are
    here.
    """
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
    """Return the Futures of evaluated nodes; none of what is in this process."""
    return [future for futures in _futures_by_environment(nodes).values() for future in futures]


def wait_for(nodes: Iterable[Expr], *, told: bool = True) -> None:
    """Wait until the blocks of evaluated nodes are there; `told`: a failure is told to `on_failure`."""
    try:
        for env, futures in _futures_by_environment(nodes).items():
            executor_for(env).wait(futures)
    except Exception:
        if told:
            tell_of_failure()
        raise


def state_of(node: Expr) -> str:
    """Return what is known of the blocks of an evaluated node: ``"finished"``, ``"pending"`` or ``"failed"``; asks
    nobody.
    """
    memo = node.stored
    if memo.on_client or not node.env.is_cluster:
        return "finished"
    states = {getattr(b, "status", "pending") for b in holding(memo.handles) if not isinstance(b, np.ndarray)}
    return "finished" if states <= {"finished"} else "failed" if states & {"error", "cancelled"} else "pending"
