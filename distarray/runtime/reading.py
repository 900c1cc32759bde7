"""Blocks of evaluated nodes, read into this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray import hooks
from distarray.errors import BlocksLostError
from distarray.expr.expr import Expr
from distarray.runtime.members import executor_for
from distarray.runtime.memory import room_of

#: Bytes up to which a result that was fetched from a cluster stays in this process.
STAYS_NBYTES = 64 << 10


def tell_of_failure() -> None:
    """Say that blocks of a cluster have failed, so that writes which these spoil are taken back."""
    if hooks.on_failure is not None:
        hooks.on_failure()


def _at_a_time(node: Expr) -> int | None:
    """Return how many bytes each worker is asked for at a time; None for all, where no worker has blocks on disk."""
    room = room_of(node.env)
    if room is None or node.nbytes <= room.made or max(executor_for(node.env).held().values(), default=0) <= room.held:
        return None
    return max(1, room.made)


def read_blocks(node: Expr, numbers: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """Return some blocks of an evaluated node as host arrays; not copied where they are in this process.

    Raises
    ------
    BlocksLostError
        If a block is lost with the workers that held it.
    """
    memo = node.stored
    blocks = [memo.blocks[i] for i in numbers]
    if node.env.is_cluster and not memo.on_client:
        remote = [i for i, b in enumerate(blocks) if not isinstance(b, np.ndarray)]
        executor, futures = executor_for(node.env), [blocks[i] for i in remote]
        try:
            if node.env.device != "cpu":
                ranks = [memo.sharding.member(tile) for tile in memo.sharding.tiles()]
                futures = executor.on_host(futures, [ranks[numbers[i]] for i in remote], node.env.device)
            arrived = executor.fetch(futures, _at_a_time(node))
        except BlocksLostError:  # who asks may have them made again
            raise
        except Exception:
            tell_of_failure()
            raise
        for i, b in zip(remote, arrived, strict=True):
            blocks[i] = b
    return [b if isinstance(b, np.ndarray) else _on_host(b, node.env.device) for b in blocks]


def _on_host(block: Any, device: str) -> Any:
    """Return a copy in host memory of a block on a device of this process."""
    from distarray.kernels.devices import backend_for

    return backend_for(device, 0).to_host(block)
