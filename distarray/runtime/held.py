"""What members hold: before an evaluation, when what is planned runs, and for its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from distarray.expr.expr import Environment, Expr
from distarray.kernels.tables import SCRATCH
from distarray.lower.liveness import Liveness, Standing, liveness
from distarray.lower.template import Lowered
from distarray.planner.graph import Graph
from distarray.runtime.members import executor_for
from distarray.runtime.memory import limits_to_try, n_tasks_at_once
from distarray.runtime.task_graph import read_from_outside
from distarray.runtime.wire import EMBED_NBYTES
from distarray.scoped import Scoped

#: By member (its home, not its rank) bytes that come to lie there before what is planned runs.
_AHEAD: ContextVar[Mapping[Any, int]] = ContextVar("ahead", default=MappingProxyType({}))


def ahead(nbytes: Mapping[Any, int]) -> Scoped[Mapping[Any, int]]:
    """Plan, inside a block, for a time at which members hold so many bytes more than now."""
    return Scoped(_AHEAD, nbytes)


def held_in(env: Environment) -> Counter[int]:
    """Return the bytes that each member of a team of a cluster holds when what is planned runs."""
    assert env.team is not None
    found: Counter[int] = executor_for(env).held()
    if coming := _AHEAD.get():
        found.update({rank: coming[home] for rank, home in enumerate(env.team.members) if home in coming})
    return found


def has_room(env: Environment, nbytes: int) -> bool:
    """Return whether even one worker could take so many bytes, beside the most that one holds already, with no block on
    its disk.
    """
    return max(held_in(env).values(), default=0) + nbytes <= limits_to_try(env)[0]


def most_held(env: Environment, nodes: Iterable[Expr], n_copies: int) -> int:
    """Return the bytes that even one member would hold for all of some nodes, each so many times, with what kernels of
    those that are pending have beside their blocks.
    """
    nbytes = beside = 0
    for node in nodes:
        nbytes += node.nbytes
        if node.memo is None and (scratch := SCRATCH.get(node.op.name)) is not None:
            (first, *_) = node.nodes()
            beside = max(beside, scratch(first.shape, first.dtype, node.params))
    return n_copies * nbytes + n_tasks_at_once(env) * beside


def peaks_of(lowered: Lowered, graph: Graph, env: Environment) -> Liveness:
    """Return what the members of an environment hold for these tasks, beside all that lies there already."""
    if not env.is_cluster:
        return liveness(lowered, graph, is_cluster=False, n_threads=n_tasks_at_once(env))
    is_copied = executor_for(env).is_to_be_cut(read_from_outside(lowered.tasks), lowered.depth)
    standing = standing_of(env, is_copied=is_copied)
    return liveness(lowered, graph, is_cluster=True, n_threads=n_tasks_at_once(env), standing=standing)


def standing_of(env: Environment, *, is_copied: bool = False) -> Standing:
    """Return what is known of the workers of a team before an evaluation, whose results get copies at once or not."""
    executor = executor_for(env)
    return Standing(held_in(env), executor.spares(), is_copied, executor.serving(), EMBED_NBYTES)
