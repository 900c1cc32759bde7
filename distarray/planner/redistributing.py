"""Stages that only cut an array in another way: the collectives in which they are carried out.

Lowering makes the tasks of these steps (`lower.collectives`), the planner counts what they cost
(`partition.resolved`). Both ask here, so what is predicted is what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from distarray.expr.crossing import CROSSING
from distarray.expr.expr import RESHARD, Expr
from distarray.planner import redistribution
from distarray.planner.plan import Stage
from distarray.planner.rates import Rates
from distarray.planner.redistribution import Redistribution
from distarray.planner.redistribution.steps import DynSlice, Exchange
from distarray.planner.redistribution.transfers import Movement, exchange_of, layers_of, primary, schedule
from distarray.sharding.sharding import Sharding


class Wishes(NamedTuple):
    """Wishes are what a user asked of a redistribution: how it is planned, and in how much memory.

    Parameters
    ----------
    mode
        How the synthesizer finds its steps: the ``mode=`` of `redistribution.plan`.
    memory
        How many bytes a member may hold while it runs, at most; it runs in as many waves as that takes. None: what the
        members have free.
    ranks
        For a move to another team, the place of each of its ranks in a list of the members of both teams, in which
        those of the team of the source come first, in their order. None where the team stays.
    """

    mode: Any = "auto"
    memory: int | None = None
    ranks: tuple[int, ...] | None = None


def redistributes(stage: Stage, nodes: Sequence[Expr]) -> bool:
    """Return whether a stage leaves every element of one array as it is; the array may still be made where it is
    read.
    """
    if not stage.family.is_fused or stage.write is not None or stage.combines:
        return False
    if len(stage.stores) != 1 or len(stage.reads) != 1 or len(stage.instructions) != 1:
        return False
    access = stage.reads[0]
    source, made = nodes[access.node], nodes[stage.stores[0][1]]
    return not access.path and made.op.is_identity and source.dtype == made.dtype


def wishes(stage: Stage, nodes: Sequence[Expr]) -> Wishes:
    """Return what was asked of the redistribution that a stage is."""
    node = nodes[stage.stores[0][1]]
    # Set by `Movable.reshard`, and by runtime.passage.
    return Wishes(*node.params) if node.op in (RESHARD, CROSSING) else Wishes()


def redistributed(
    shape: Sequence[int],
    source: Sharding,
    target: Sharding,
    itemsize: int,
    mode: Any,
    *,
    has_messages: bool,
    rates: Rates | None = None,
    ranks: Sequence[int] | None = None,
) -> Redistribution | None:
    """Return the plan of the synthesizer; None where it has no say: cuts or meshes that only an exchange leads between.

    Parameters
    ----------
    has_messages
        Whether members are processes of their own.
    rates
        That decide between modes; those that hold now if not given.
    ranks
        See `Wishes`.
    """
    source, target = source.with_copies(False), target.with_copies(False)  # of copies `lower.copies` knows
    if ranks is not None and source.is_regular and target.is_regular and shape:
        return _across(shape, source, target, itemsize, mode, rates, ranks)
    if source.mesh.size != target.mesh.size or not source.is_regular or not target.is_regular or not shape:
        return None
    if [source.mesh.member(p) for p in range(source.mesh.size)] != [
        target.mesh.member(p) for p in range(target.mesh.size)
    ]:
        return None
    if mode == "auto" and not has_messages:
        mode = "direct"  # messages between threads cost nothing
    plan = redistribution.plan(shape, source, target, mode=mode, itemsize=itemsize, rates=rates)
    return plan if plan.steps else None  # everything is where it should be


def _across(
    shape: Sequence[int],
    source: Sharding,
    target: Sharding,
    itemsize: int,
    mode: Any,
    rates: Rates | None,
    ranks: Sequence[int],
) -> Redistribution | None:
    """Return the plan from one team to another.

    Of a replicated target one copy is made. So the gathers behind the exchange, by which the synthesizer lets replicas
    get their tile from each other, would only add to what is sent: then the exchange makes the tiles itself.
    """
    members = [source.mesh.member(p) for p in range(source.mesh.size)]
    found = partial(
        redistribution.plan,
        shape,
        source,
        target,
        itemsize=itemsize,
        rates=rates,
        members=members,
        dst_members=[ranks[target.mesh.member(p)] for p in range(target.mesh.size)],
    )
    plan = found(mode=mode)
    crossed = [isinstance(step, Exchange) and step.crosses for step in plan.steps]
    if True in crossed and not crossed[-1]:
        plan = found(mode="direct")
    return plan if plan.steps else None


def movements(shape: Sequence[int], source: Sharding, target: Sharding, plan: Redistribution | None) -> list[Movement]:
    """Return what each step makes; of a replicated source one copy exists, of a replicated target one is wanted."""
    if plan is None:
        return exchange_of(primary(source, shape), primary(target, shape))
    held = {tile: source.place(tile) for tile in source.tiles()}
    wanted = [target.place(tile) for tile in target.tiles()]
    return schedule(layers_of(shape, plan.trace), plan.steps, held, wanted)


def n_exchanges(plan: Redistribution) -> int:
    """Return steps in which members send each other something; slices are taken where a tile is read."""
    return sum([not isinstance(step, DynSlice) for step in plan.steps])
