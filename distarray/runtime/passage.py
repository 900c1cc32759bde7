"""Passages: an array goes from one team of a cluster to another, as the synthesizer plans it.

A passage is an evaluation of one stage on the members of both teams, those of the source first: its operand lies on
places of the one, its result on places of the other. So it is planned (`planner.redistribution.fused`), kept to the
memory of each member in waves, counted and lowered by what does so for a new cut on one team (`collectives`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from distarray import config
from distarray.expr.crossing import CROSSING
from distarray.expr.expr import SOURCE, Environment, Expr, Stored
from distarray.expr.instructions import Instruction
from distarray.planner.cache import PLANS
from distarray.planner.graph import canonical
from distarray.planner.plan import Access, Cut, Pinned, Plan, Stage
from distarray.runtime.budget import refuse
from distarray.runtime.clients import placement_of
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.planning import context_of, exceeds
from distarray.runtime.prepare import Prepared
from distarray.runtime.running import handed_out, instance_to_run
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team

#: Of the members of a passage, which are in no order.
_AXIS = "member"


def is_planned(source: Environment, target: Environment) -> bool:
    """Return whether the members of two environments can send each other blocks, and have them on one device."""
    return source.is_cluster and source.client is target.client and source.device == target.device


def passage(node: Expr, memo: Stored, env: Environment, sharding: Sharding) -> Prepared:
    """Return how an array goes from its team to another one of its cluster: an evaluation by the members of both.

    Parameters
    ----------
    node, memo
        The array, and how it lies or will lie.
    env
        Where it goes.
    sharding
        How it is to lie there.
    """
    both = _both(node.env, env)
    assert both.team is not None
    assert env.team is not None
    number = {member: n for n, member in enumerate(both.team.members)}
    ranks = tuple([number[member] for member in env.team.members])
    leaf = Expr(SOURCE, (), node.shape, node.dtype, both)
    leaf.memo = memo
    there = Expr(CROSSING, (leaf,), node.shape, node.dtype, both, ("auto", None, ranks), pin=sharding)
    there.origin = node.origin
    order, wanted = (leaf, there), {id(there)}
    graph = canonical(order, wanted, context_of(both))
    plan = PLANS.get(graph.key, lambda: _plan(there), config.get("plan-cache-size"))
    return Prepared(plan, graph, both, order, wanted, {})


def _both(source: Environment, target: Environment) -> Environment:
    """Return the members of two teams, those of the source first."""
    assert source.team is not None
    assert target.team is not None
    # What is known of a team is known by the object: there is one for as long as both live.
    known = placement_of(source.team.client).joint.setdefault(source.team, weakref.WeakKeyDictionary())
    team = known.get(target.team)
    if team is None:
        members = tuple(dict.fromkeys((*source.team.members, *target.team.members)))
        team = known[target.team] = Team((len(members),), (_AXIS,), source.team.client, members)
    return Environment(team, source.device)


def _plan(there: Expr) -> Plan:
    reshard = Instruction("reshard", (0,), there.dtype, there.params)
    stage = Stage("program", (1,), (Access(0),), (reshard,), stores=((1, 1),), cut=Cut(Pinned(1)))
    return Plan((stage,), (1,), "synthesizer")


def check(found: Prepared) -> None:
    """Check that the members can hold what a passage needs.

    Raises
    ------
    MemoryBudgetError
        If they cannot; says how much, and what would do.
    """
    if (excess := exceeds(found.plan, found.graph, found.env)) is not None:
        (needed, _), why = excess
        refuse(CROSSING.name, needed, why)


def run(found: Prepared) -> Sequence[Any]:
    """Return the blocks of the target, row-major: Futures of tasks that are handed out, or arrays where nothing is to
    be made.

    Raises
    ------
    MemoryBudgetError
        If members cannot hold what it needs; then nothing is handed out.
    """
    check(found)
    instance = instance_to_run(found)
    with interrupts_deferred():
        # What the source stands on may be read by others too.
        ((_, stored),) = handed_out(instance, lambda: None)
    return stored.blocks
