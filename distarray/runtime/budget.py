"""The memory budget of a member, held against what a plan needs before any task is handed out.

Most operations are cut until they fit, and streamed (`fit`); where even that is not enough, a budget that the user has
set is an error. A kernel that needs an axis whole (`ShardingRule`'s ``whole``: eigenvalues, the transform of a vector)
cannot be cut, so its tiles are measured against any budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, NoReturn

from distarray.errors import MemoryBudgetError
from distarray.expr.expr import Environment, Expr
from distarray.lower.liveness import Liveness
from distarray.planner.plan import Plan
from distarray.runtime.memory import available_nbytes, is_limit_set, limit_option, memory_limit, room_nbytes, room_of
from distarray.runtime.retention import is_beyond_memory

if TYPE_CHECKING:
    from distarray.lower.records import Draft


def check_held(nodes: Iterable[Expr], wanted: Collection[int]) -> None:
    """Check that the results that are to be held are not larger than all the memory of their members.

    Parameters
    ----------
    nodes
        Pending.
    wanted
        ``id`` of those that are held; written arrays are held in any case.

    Raises
    ------
    MemoryBudgetError
        If one is; says how large it is, and what there is.
    """
    for n in nodes:
        if (id(n) in wanted or n.op.family.is_write) and is_beyond_memory(n):
            raise MemoryBudgetError(
                f"{n.op.name}: the result of shape {n.shape} is {n.nbytes} bytes, and its members have room "
                f"for {room_nbytes(n.env)} bytes in all; compute a part of it, reduce it, or write it to a store"
            )


def check_fetch(node: Expr) -> None:
    """Check that an array that is asked for fits into this process, before any of it is computed.

    Raises
    ------
    MemoryBudgetError
        If it does not; says how much it would take, and what there is.
    """
    # What is computed in this process is made in blocks, and copied from there.
    is_made_here = node.memo is None and not node.env.is_cluster and node.env.device == "cpu"
    needed, free = node.nbytes * (2 if is_made_here else 1), available_nbytes()
    if needed > free:
        raise MemoryBudgetError(
            f"an array of shape {node.shape} and {node.nbytes} bytes is asked for in this process, which takes "
            f"{needed} bytes of the {free} that it has left; slice it, reduce it, or write it to a store"
        )


def excess_of(found: Liveness, env: Environment) -> str | None:
    """Return why the workers of a cluster cannot hold what tasks need there; None if they can.

    A limit that is set holds for all blocks. Where none is set, what dask does with a worker whose memory fills up says
    what fits: all blocks in memory, or else, with blocks on disk, what tasks read and make at a time.
    """
    peak = found.worst[0]
    if is_limit_set(env):
        return None if peak <= memory_limit(env) else _above_limit(peak, env)
    room = room_of(env)
    if room is None or peak <= room.held:
        return None
    made = max([made for made, _ in found.largest.values()], default=0)
    used = max([used for _, used in found.largest.values()], default=0)
    # Host data come before any task runs.
    sent = max([n for came in found.sent.values() for after, n in came if after > room.held], default=0)
    if not room.excess(max(made, sent), used):
        return None
    if sent > max(made, room.made):
        return (
            f"of {room.held} that a worker has for blocks before it pauses, and with blocks on disk {sent} bytes of "
            f"host data and copies would come to it at a time (up to {room.made} are safe); give workers more memory"
        )
    return (
        f"of {room.held} that a worker has for blocks before it pauses, and with blocks on disk its tasks would read "
        f"and make {used} bytes at a time, {made} of them new (up to {room.made} are safe); give workers more memory"
    )


def _above_limit(nbytes: int, env: Environment) -> str:
    return f"above the {limit_option(env)} of {memory_limit(env)} bytes; raise the option to {nbytes} or more"


def most_in_memory(env: Environment) -> int | None:
    """Return the bytes of blocks that a worker may hold with none of them on disk; None where there is no limit."""
    if is_limit_set(env):
        return memory_limit(env)
    room = room_of(env)
    return None if room is None else room.held


def most_beside_disk(env: Environment) -> int:
    """Return the bytes that tasks of a worker may read and make in any case, while other blocks lie on its disk."""
    room = None if is_limit_set(env) else room_of(env)
    return 0 if room is None else min(room.made, room.held)


def refuse(names: str, needed: int, why: str) -> NoReturn:
    """Raise the error that says that a plan does not fit."""
    raise MemoryBudgetError(
        f"{names}: a member would hold {needed} bytes by the best plan that was found, what lies there already "
        f"included, {why}, drop arrays that are not needed, or use more workers"
    )


def check_peak(plan: Plan, nodes: Sequence[Expr], env: Environment) -> None:
    """Check that a plan for members of this process keeps to the limit of memory that is set for them, if one is.

    Without it the limit is a guess, half of what there is: planners aim at it, but what does not fit may yet run.

    Raises
    ------
    MemoryBudgetError
        If nothing that was tried fits; says for what, and how much memory the best plan needs.
    """
    if plan.above is None or not is_limit_set(env):
        return
    needed, stage = plan.above
    refuse(names_of(plan, nodes, stage), needed, _above_limit(needed, env))


def names_of(plan: Plan, nodes: Sequence[Expr], stage: int) -> str:
    """Return the operations of a stage, and the user's lines that they are of."""
    made = [nodes[i] for i in plan.stages[stage].nodes]
    lines = ", ".join(dict.fromkeys([str(n.origin) for n in made if n.origin is not None]))
    return ", ".join(dict.fromkeys([n.op.name for n in made])) + (f" of {lines}" if lines else "")


def check_whole_kernels(drafts: Sequence[Draft], nodes: Sequence[Expr], env: Environment) -> None:
    """Check that the operands and results of each task of such a kernel fit a member.

    Parameters
    ----------
    drafts
        The stages, cut into tiles.
    nodes
        What `drafts` number.

    Raises
    ------
    MemoryBudgetError
        If they do not; says how many bytes they are.
    """
    drafts = [draft for draft in drafts if draft.stage.family.has_whole_axes and draft.loops.whole]
    if not drafts:
        return
    limit = max(memory_limit(env), most_in_memory(env) or 0)  # the first is a guess where nobody has set it
    for draft in drafts:
        node = nodes[draft.stage.nodes[0]]
        operands = sum(r.nbytes for r in draft.readings)
        if operands + node.nbytes <= limit:  # even in one task
            continue
        needed, results = max(_nbytes(draft, nodes))
        if needed > limit:
            raise MemoryBudgetError(
                f"{node.op.name}: one task needs {needed} bytes ({needed - results} of operands, {results} of "
                f"results), above the {limit} bytes that a member may use: this operation is not cut along the axes "
                "that it works on; raise the option memory-limit, or use workers with more memory"
            )


def _nbytes(draft: Draft, nodes: Sequence[Expr]) -> list[tuple[int, int]]:
    """Return for each tile the bytes of operands and results, and of these the results."""
    node = nodes[draft.stage.nodes[0]]
    found = []
    for tile in draft.tiles:
        results = sum(
            prod(len(tile.box[a]) for a in axes) * dtype.itemsize
            for axes, dtype in zip(draft.loops.results, node.dtypes, strict=True)
        )
        operands = sum(
            prod(map(len, want.box)) * r.dtype.itemsize for want, r in zip(tile.wants, draft.readings, strict=True)
        )
        found.append((operands + results, results))
    return found
