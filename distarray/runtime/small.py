"""Evaluations in which every array is one small block in this process: plain calls, and nothing to plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import lru_cache

import numpy as np

from distarray.expr.expr import Environment, Expr, Stored
from distarray.runtime import counters
from distarray.runtime.donation import donated, kept
from distarray.runtime.interrupts import interrupts_deferred
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = ["is_small", "most_nbytes", "run"]

#: Larger arrays gain more by a pass in slices, and by threads, than a plan and a program take.
SMALL_NBYTES = 2 << 20


def most_nbytes(env: Environment) -> int:
    """Return the bytes of the largest array that plain calls are made for."""
    return min(env.block_nbytes, SMALL_NBYTES)


def is_small(order: Sequence[Expr], env: Environment) -> bool:
    """Return whether every array is one block of at most `SMALL_NBYTES` in this process."""
    if env.device != "cpu":
        return False
    limit = most_nbytes(env)
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
            if node.nbytes > limit:
                return False
        else:
            n = node.dtype.itemsize
            for s in node.shape:
                n *= s
            if n > limit and node.op.kind != "get":
                return False
    return True


def run(env: Environment, order: Sequence[Expr], wanted: set[int], others: Callable[[], Iterable[Expr] | None]) -> None:
    """Evaluate nodes that `is_small` holds for; see `running.run`."""
    # Kernels take a quarter of the package's time to load: an import does without them.
    from distarray.kernels.interpret import interpret

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
        if len(results) == 1 and results[0][0].op.family.is_new and not free:
            results[0][0].settle(results[0][1])  # no other array can have its block
        else:
            kept(results, order, free)
    for c in counters.active:
        c.inline += 1


@lru_cache(maxsize=256)
def _whole(mesh: Mesh, ndim: int) -> Sharding:
    return Sharding.whole(mesh, ndim)
