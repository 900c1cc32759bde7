"""Crossings: how graphs of several environments are run, one beneath the other (`distarray.expr.crossing`).

`evaluate.settle` carries them out. All of it is planned, and held against the memory of the members, before the first
step runs. `foreseen` says where crossings will lie, for those who plan without running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distarray.errors import MemoryBudgetError
from distarray.expr import crossing
from distarray.expr.expr import SOURCE, BlockName, Environment, Expr, Others, Stored, postorder
from distarray.lower.recipes import Unsent, unsent_blocks
from distarray.lower.template import Lowered
from distarray.runtime import passage, planning, prepare
from distarray.runtime.held import ahead, standing_of
from distarray.runtime.hosts import check_room, host_cut
from distarray.runtime.instantiate import Instance
from distarray.runtime.memory import COPIES, is_limit_set, memory_limit
from distarray.runtime.rehome import healed, is_gone, same_cut
from distarray.runtime.running import kept_nbytes
from distarray.runtime.small import is_small
from distarray.sharding.dealing import dealt, n_elements
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import are_beside


def heal(steps: Sequence[Sequence[Expr]]) -> None:
    """Let crossings and what they read go where they can be had, where clients are gone."""
    for node in [n for step in steps for n in step]:
        healed([node], node.env)
        (source,) = node.nodes()
        if is_gone(source.env):  # what can be had again is made where it was to go
            healed(crossing.graph([source]), source.env, node.env)


def sources_of(step: Iterable[Expr]) -> list[Expr]:
    """Return what crossings read and what is still to be computed for them; each once."""
    found = {id(source): source for node in step for source in node.nodes() if source.memo is None}
    return list(found.values())


def beside(targets: Sequence[Expr], others: Others) -> Others:
    """Return what is pending besides what the crossings of targets read: the targets too, which need it."""

    def pending() -> list[Expr] | None:
        found = others()
        return None if found is None else [*found, *targets]

    return pending


def check(targets: Sequence[Expr]) -> None:
    """Check that members can hold what computing `targets` needs, crossings included; nothing runs.

    Raises
    ------
    MemoryBudgetError
        If they cannot.
    """
    if all(planning.is_ample(nodes, env, 2 * COPIES) for env, nodes in _by_env(postorder(targets)).items()):
        return
    seen = foreseen(targets, is_checked=True)
    known = seen.stand_ins
    for env, group in _by_env([t for t in targets if t.memo is None and id(t) not in known]).items():
        order = crossing.graph(group)
        if not is_small([known.get(id(n), n) for n in order], env):
            with ahead(seen.coming):
                prepare.check(env, order, {id(t) for t in group}, known)


def _by_env(nodes: Iterable[Expr]) -> dict[Environment, list[Expr]]:
    found: dict[Environment, list[Expr]] = {}
    for node in nodes:
        found.setdefault(node.env, []).append(node)
    return found


@dataclass(slots=True)
class Foreseen:
    """A Foreseen says how the crossings that nodes need will be carried out.

    Parameters
    ----------
    stand_ins
        By ``id`` of each pending crossing a node that lies as it will, and of what runs before make and bring there.
    lying
        By ``id`` of each pending node that they read how it will lie, host data before their first use.
    before
        By ``id`` of each of both what comes to lie at members of clusters before it is made: see `held.ahead`.
    coming
        What comes to lie there in all.
    """

    stand_ins: dict[int, Expr] = field(default_factory=dict)
    lying: dict[int, Stored] = field(default_factory=dict)
    before: dict[int, Counter[Any]] = field(default_factory=dict)
    coming: Counter[Any] = field(default_factory=Counter)


def foreseen(targets: Iterable[Expr], *, is_checked: bool = False) -> Foreseen:
    """Return how the pending crossings that nodes need will be carried out; nothing runs, nothing changes.

    Parameters
    ----------
    is_checked
        Whether members must be able to hold what comes before.
    """
    known = Foreseen()
    for step in crossing.levels(targets):
        _see_sources(sources_of(step), known, is_checked=is_checked)
        for node in step:
            (source,) = node.nodes()
            _see_crossing(node, source, source.memo or known.lying[id(source)], known, is_checked=is_checked)
    return known


def _see_sources(sources: Sequence[Expr], known: Foreseen, *, is_checked: bool) -> None:
    """Note how pending nodes will lie."""
    for node in sources:
        if id(node) in known.stand_ins and id(node) not in known.lying:
            memo = known.stand_ins[id(node)].stored
            known.lying[id(node)] = memo
    for env, group in _by_env([n for n in sources if id(n) not in known.lying]).items():
        known.before |= {id(n): Counter(known.coming) for n in group}
        with ahead(known.coming):
            rehearsed = prepare.rehearsed(group, known.stand_ins)
            if rehearsed is not None and is_checked and (env.is_cluster or is_limit_set(env)):
                planning.checked(rehearsed[0].graph, env)
        if rehearsed is None:
            known.lying |= {id(n): _on_client(n) for n in group}
            continue
        found, instance = rehearsed
        cuts = {id(n): instance.outputs[i].sharding for n, i in zip(found.kept, found.plan.outputs)}
        known.lying |= {id(n): _promised(n, cuts[id(n)]) for n in group}
        if env.is_cluster:
            for node in filter(_is_unsent, found.graph.nodes):
                _see_host(node, node.stored.sharding, known)
            _see_results(instance.lowered, env, known)


def _is_unsent(planned: Expr) -> bool:
    """Return whether a node of a plan stands for host data that are still to be sent to members."""
    memo = planned.memo
    return memo is not None and not memo.on_client and type(memo.handles[0]) is Unsent


def see_run(targets: Sequence[Expr], run: tuple[prepare.Prepared, Instance] | None, known: Foreseen) -> None:
    """Note how what a run makes and brings there will lie for those after it in its environment."""
    if run is None:
        known.stand_ins |= {id(node): _there(node, _on_client(node)) for node in targets}
        return
    found, instance = run
    cuts = {id(n): instance.outputs[i].sharding for n, i in zip(found.kept, found.plan.outputs)}
    for node, planned in zip(found.order, found.graph.nodes, strict=True):
        if _is_unsent(planned):
            cuts[id(node)] = planned.stored.sharding
            _see_host(planned, cuts[id(node)], known)
    made = [node for node in found.order if id(node) in cuts]
    known.stand_ins |= {id(node): _there(node, _promised(node, cuts[id(node)])) for node in made}
    _see_results(instance.lowered, targets[0].env, known)


def _see_host(node: Expr, cut: Sharding, known: Foreseen, *, is_copied: bool = True) -> None:
    """Note that data come to members, and if they are sent from this process copies of them to others."""
    assert node.env.team is not None
    members, standing = node.env.team.members, standing_of(node.env)
    for number, ((rank, _), n) in enumerate(zip(dealt(cut).places, n_elements(cut, node.shape), strict=True)):
        nbytes = n * node.dtype.itemsize
        known.coming[members[rank]] += nbytes
        spare = standing.copied_to(rank, nbytes, cut, number) if is_copied else None
        if spare is not None and spare < len(members):
            known.coming[members[spare]] += nbytes


def _see_results(lowered: Lowered, env: Environment, known: Foreseen) -> None:
    """Note that the results of a plan come to members."""
    assert env.team is not None
    for key, nbytes in kept_nbytes(lowered.outputs).items():
        if key in lowered.members:  # else it is there already
            known.coming[env.team.members[lowered.members[key]]] += nbytes


def _see_crossing(node: Expr, source: Expr, memo: Stored, known: Foreseen, *, is_checked: bool) -> None:
    """Note how a crossing will lie."""
    env = node.env
    known.before[id(node)] = Counter(known.coming)
    if memo.on_client:
        known.lying[id(node)] = here = _on_client(node)
        known.stand_ins[id(node)] = there = _there(node, here)
        # Its first use brings it to where it is to be.
        if (cut := host_cut(there, env)) is not None:
            there.memo = _coming(node, cut)
        return
    cut = node.pin or same_cut(memo.sharding, node, env)
    known.stand_ins[id(node)] = there = _there(node, _promised(node, cut))
    found = passage_of(node, source, memo, cut)
    if found is not None:
        with ahead(known.coming):
            if is_checked:
                passage.check(found)
            _see_results(found.lowered("rehearsal"), found.env, known)
    elif env.is_cluster:
        is_sent = not are_beside(source.env.team, env.team)  # else only the device changes
        if is_checked and is_sent:
            with ahead(known.coming):
                check_room([_there(node, _coming(node, cut))], env)
        _see_host(there, cut, known, is_copied=is_sent)
    elif is_checked and is_limit_set(env):
        _check_here(node, source)


def _there(node: Expr, memo: Stored) -> Expr:
    """Return what stands for a node that will lie so."""
    there = Expr(SOURCE, (), node.shape, node.dtype, node.env, pin=node.pin)
    there.memo = memo
    return there


def _coming(node: Expr, cut: Sharding) -> Stored:
    """Return the memo of data that are to be sent from this process."""
    return Stored(cut, unsent_blocks(cut, id(node)))


def _on_client(node: Expr) -> Stored:
    """Return the memo of what will be an array of this process, without its memory."""
    block = np.broadcast_to(np.zeros((), node.dtype), node.shape)
    return Stored(Sharding.whole(node.env.mesh, node.ndim), [block], on_client=True)


def _promised(node: Expr, cut: Sharding) -> Stored:
    """Return the memo of what will lie so."""
    return Stored(cut, [BlockName(("dx-crossing", id(node), n)) for n in range(len(dealt(cut).places))])


def passage_of(node: Expr, source: Expr, memo: Stored, cut: Sharding) -> prepare.Prepared | None:
    """Return how a crossing is planned; None where it is not: blocks that go through this process, or stay where they
    are.
    """
    if memo.on_client or not passage.is_planned(source.env, node.env):
        return None
    return passage.passage(source, memo, node.env, cut)


def _check_here(node: Expr, source: Expr) -> None:
    """Check that this process can hold what comes to one of its teams."""
    # All members are this process: what comes, and what is here already.
    needed = node.nbytes * (1 if source.env.is_cluster else 2)
    limit = memory_limit(node.env) * node.env.size
    if needed > limit:
        raise MemoryBudgetError(
            f"{node.op.name}: an array of shape {node.shape} takes {needed} bytes in this process, above the "
            f"memory-limit of {limit} bytes for all {node.env.size} members; move a part of it, or raise the option"
        )
