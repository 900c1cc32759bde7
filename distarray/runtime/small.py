"""Evaluations in which every array is one small block in this process: plain calls, and nothing to plan.

The smallest of them wait for nothing: an operation on arrays of up to ``eager-bytes`` that are here is computed when it
is made (`at_once`). To list it, to find it again and to see what else needs it costs ten times what it computes, and
takes longer than fusion could save. A write gives a new block then, so that no other thread has to be asked; it costs a
copy that stays in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any

import numpy as np

from distarray import config, hooks
from distarray.deferral import errors_wait
from distarray.expr.expr import BLOCK_NBYTES, GET, Environment, Expr, Stored, late_params
from distarray.expr.op import Op
from distarray.runtime import counters
from distarray.runtime.donation import donated, kept
from distarray.runtime.interrupts import interrupts_deferred
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = ["at_once", "is_small", "most_nbytes", "run"]

#: Larger arrays gain more by a pass in slices, and by threads, than a plan and a program take.
SMALL_NBYTES = 2 << 20
#: Steps up to which an operation made of several is computed at once.
_MOST_STEPS = 32


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
            if node.pin is not None and memo.on_client and not _is_anywhere(node.pin):
                return False  # to be placed as the user asked
            if not memo.on_client and not (in_process and _is_anywhere(memo.sharding)):
                return False
            if type(memo.blocks[0]) is not np.ndarray:
                return False
        elif node.pin is not None and not (in_process and _is_anywhere(node.pin)):
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


def _is_anywhere(sharding: Sharding) -> bool:
    """Return whether a type is one block, of no member in particular."""
    return sharding.n_tiles == 1 and sharding.mesh.owners is None


def at_once(node: Expr) -> tuple[Expr, Callable[[], None]] | None:
    """Return a computed node in the place of a pending one where all that this needs is here and small; None elsewhere.

    Nothing else is computed: what it needs and is neither computed nor constant must be a part of it, of which nobody
    else has a handle. The pending node stays as it is, since other threads may see it.

    Returns
    -------
    Expr
        The computed node.
    callable
        Warns of what was met on the way: to be called when the node stands where it should, for warnings may be errors.

    Raises
    ------
    Exception
        What a kernel raises.
    """
    env = node.env
    if node.pin is not None or env.device != "cpu" or not (node.op is GET or _may_be_at_once(node)):
        return None
    limit = _eager_nbytes(env)
    if node.nbytes > limit:
        return None
    if node.op is GET and (block := _block_here(node)) is not None:  # a number, mostly
        return _computed(np.array(block, order="C"), GET, node.shape, node.dtype, env, node.params), _silent
    values: dict[int, Any] = {}
    steps = [node]
    for step in steps:
        for o in step.operands:
            if type(o) is not Expr or id(o) in values:
                continue
            block = _block_here(o)
            if block is not None:
                if block.nbytes > SMALL_NBYTES:
                    return None
                values[id(o)] = block
            elif len(steps) < _MOST_STEPS and _is_part(o) and o.nbytes <= limit:
                steps.append(o)
            else:
                return None
    for c in counters.active:
        c.evaluations += 1
        c.inline += 1
    value, warn = _interpreter().computed(steps[::-1], values)
    return _computed(value, node.op, node.shape, node.dtype, env, node.params), warn


def _silent() -> None:
    pass


def _computed(block: Any, op: Op, shape: tuple[int, ...], dtype: Any, env: Environment, params: Any) -> Expr:
    """Return the node of an operation whose value is there."""
    made = Expr(op, (), shape, dtype, env, params)
    made.memo = Stored(_whole(env.mesh, len(shape)), (block,), True, False)
    return made


def computed_map(
    op: Op, nodes: Sequence[Any], shape: tuple[int, ...], dtype: Any, env: Environment, params: tuple[Any, ...]
) -> Expr | None:
    """Return a computed node of an elementwise operation, where its operands are here and small; None elsewhere.

    It is `at_once` for most of what programs do, before there is a node.

    Parameters
    ----------
    nodes
        Operands, and Python scalars in their places.
    """
    if op.may_raise or env.device != "cpu":
        return None
    n = dtype.itemsize
    for extent in shape:
        n *= extent
    limit = _eager_nbytes(env)
    if n > limit:
        return None
    args: list[Any] = []
    for node in nodes:
        if type(node) is Expr:
            block = _block_here(node)
            if block is None or block.nbytes > SMALL_NBYTES:
                return None
            args.append(block)
        else:
            args.append(node)
    for c in counters.active:
        c.evaluations += 1
        c.inline += 1
    return _computed(_interpreter().computed_map(op, params, args, shape, dtype), op, shape, dtype, env, params)


hooks.computed_map = computed_map


def _eager_nbytes(env: Environment) -> int:
    """Return the bytes of the largest arrays that operations are computed on when they are made; -1 for none at all."""
    limit: int = config.get("eager-bytes") or -1
    if limit <= BLOCK_NBYTES and config.get("block-bytes") is None:
        return limit  # no array is cut that is as small
    return min(limit, env.block_nbytes)


@cache
def _interpreter() -> Any:
    """Return the module of plain calls: kernels take a quarter of the package's time to load, an import does without
    them.
    """
    from distarray.kernels import interpret

    return interpret


def _is_part(node: Expr) -> bool:
    """Return whether a pending node may be computed with the one that reads it: nobody has a handle of it, or it is
    never kept; and nobody said how it is cut.
    """
    if node.memo is not None or (node.pin is not None and node.pin.n_tiles > 1):
        return False
    return node.op.repeatable or (not node.is_live and (node.op is GET or _may_be_at_once(node)))


def _may_be_at_once(node: Expr) -> bool:
    op = node.op
    if not op.family.is_at_once or type(node.dtype) is tuple:
        return False
    # What the user's functions do is done when somebody wants it.
    return not op.may_raise or (not late_params(node) and not errors_wait())


def _block_here(node: Expr) -> Any:
    """Return the elements of a computed node, or of a view of one, as one NumPy array that lies in this process; None
    where there is no such array.
    """
    memo, lens = node.memo, None
    if memo is None:
        if node.op is not GET or (pending := node.unsettled()) is None:
            return None
        (source,), lens = pending
        assert type(source) is Expr
        node, memo = source, source.memo
        if memo is None:
            return None
    blocks = memo.blocks
    if type(blocks) not in (tuple, list) or len(blocks) != 1 or (node.pin is not None and node.pin.n_tiles > 1):
        return None
    block = blocks[0]
    if type(block) is not np.ndarray or not (memo.on_client or not node.env.is_cluster):
        return None
    return block if lens is None else lens.read(block)


def run(env: Environment, order: Sequence[Expr], wanted: set[int], others: Callable[[], Iterable[Expr] | None]) -> None:
    """Evaluate nodes that `is_small` holds for; see `running.run`."""
    free = donated(order, wanted, others)
    with interrupts_deferred() if free else nullcontext():
        values = _interpreter().interpret(order, wanted, free)
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
