"""The planner of the engine: the plan that propagation gives, or one that a search over the whole expression finds.

There are three tiers. First: graphs that propagation alone plans, since no other cut can be better: elementwise work
and reductions whose operands lie alike, arrays of one block each, and arrays of which somebody said member by member
who holds what. Second: graphs for which the search runs at once, since its time is a small part of what the propagated
plan is predicted to take. Third: all others, whose propagated plan is provisional; the search runs when the same graph
has come often enough, if some runs repay it. Host arrays that are about to be cut are worth more: how they are cut
stays.

*Branches* are parts of an expression that do not need each other, computed side by side by a part of the members each
(`branchings`). A product that half of the members compute moves less than one that all of them do, and takes twice as
long; of two products that do not need each other, each with its own half, both are done in the same time as one after
the other. So what comes before a stage that gathers several results of alike work may go to corners of the mesh: the
places with the same coordinates along its first axes. What that gains is counted in
``asv_bench/benchmarks/branches.py``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from distarray.expr.expr import Environment
from distarray.planner import eindecomp
from distarray.planner.graph import Graph
from distarray.planner.partition.facts import StageFacts
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.planner.partition.search import choose
from distarray.planner.partition.states import MAX_STATES, variables_of
from distarray.planner.partition.translation import ein_graph
from distarray.planner.plan import Cut, Limits, Plan
from distarray.planner.propagation import propagated
from distarray.planner.rates import Rates
from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import prime_factors, prime_mesh
from distarray.sharding.sharding import Sharding
from distarray.tables import format_nbytes, format_seconds

#: By number of the stage the coordinates of the members that compute it.
Corners: TypeAlias = Mapping[int, tuple[int, ...]]
#: Branches have nearly the same work: the mean is at least this share of the most.
LEAST_SHARE = 0.85
#: Stages that may end branches: those that wait longest for their operands.
MAX_ENDS = 8


def branchings(problem: PartitionProblem, placed: ResolvedStages, least: float) -> list[Corners]:
    """Return the ways to deal branches out to the corners of the mesh that may save something; what may save most
    first.

    Parameters
    ----------
    placed
        A plan in which all members compute every stage.
    least
        Seconds: ways that can save no more are left out.
    """
    own = _own_seconds(problem, placed)
    waits = [float(c.seconds.total) - s for c, s in zip(placed.costs, own, strict=True)]
    before = _ancestors(problem)
    movable = {facts.number for facts in problem.facts if is_movable(facts, problem)}
    ends = sorted([n for n in movable if waits[n] > 0], key=lambda n: -waits[n])[:MAX_ENDS]
    found: list[tuple[float, Corners]] = []
    for corners in corners_of(problem.mesh):
        for chosen in combinations(sorted(ends), len(corners)):
            if any(a in before[b] for a, b in combinations(chosen, 2)):
                continue
            branches = [sorted(movable & _alone(end, chosen, before)) for end in chosen]
            work = [sum([own[n] for n in branch]) for branch in branches]
            saved = sum([waits[n] for branch in branches for n in branch])
            if sum(work) >= LEAST_SHARE * len(work) * max(work) and saved > least:
                found.append((saved, {n: at for branch, at in zip(branches, corners, strict=True) for n in branch}))
    return [dealt for _, dealt in sorted(found, key=lambda pair: -pair[0])]


def _alone(end: int, ends: Collection[int], before: Sequence[set[int]]) -> set[int]:
    """Return a stage and those before it that no other end needs."""
    return {end, *before[end]}.difference(*[before[other] for other in ends if other != end])


def _own_seconds(problem: PartitionProblem, placed: ResolvedStages) -> list[float]:
    """Return the seconds of computing each stage, without what it waits for."""
    costs = problem.costs
    return [
        0.0 if facts.stage.family.is_item else costs.balanced_seconds(facts, costs.boxes(facts, [sharding]))
        for facts, sharding in zip(problem.facts, placed.shardings, strict=True)
    ]


def _ancestors(problem: PartitionProblem) -> list[set[int]]:
    """Return, for each stage, the numbers of all stages whose results it needs, directly or through others."""
    made = {i: facts.number for facts in problem.facts for i in facts.stage.nodes}
    found: list[set[int]] = []
    for facts in problem.facts:
        direct = {made[r.node] for r in facts.readings if made.get(r.node, facts.number) != facts.number}
        found.append(direct.union(*[found[n] for n in direct]))
    return found


def is_movable(facts: StageFacts, problem: PartitionProblem) -> bool:
    """Return whether a stage may be computed by some members only: nobody keeps what it makes."""
    return (
        facts.stage.is_separable
        and not facts.loops.is_recut
        and bool(facts.kept)
        and facts.pinned < 0
        and facts.leader < 0
        and not facts.is_written
        and facts.largest_nbytes > problem.limits.block
        and not any(i in problem.graph.kept for i in facts.stage.nodes)
    )


def corners_of(mesh: Mesh) -> Iterator[list[tuple[int, ...]]]:
    """Yield the coordinates of the corners of a mesh, for one and more of its first prime axes.

    >>> [len(corners) for corners in corners_of(Mesh(("x",), (8,)))]
    [2, 4, 8]
    """
    sizes = prime_mesh(mesh).sizes
    for n in range(1, len(sizes) + 1):
        if prod(sizes[:n]) > MAX_ENDS:
            return
        yield [tuple(map(int, c)) for c in np.ndindex(*sizes[:n])]


#: Seconds that the search takes for each stage, about, and for each triple of its states: tables over three variables.
STAGE_SECONDS = 2e-3
TRIPLE_SECONDS = 2e-8
#: The search runs at once if it takes at most this share of the predicted run time.
WORTH = 0.1
#: A plan that could be faster by less than this share is final.
NEGLIGIBLE = 0.02
#: Ways to deal out branches that are tried.
MAX_BRANCHINGS = 4
#: Seconds that it takes to count what a plan costs, for each stage.
COUNT_SECONDS = 1e-3
#: A search for a graph that comes again must be repaid by what so many runs may gain; and one for inputs that are about
#: to be cut, which lie so from then on, by so many.
RUNS = 100
INPUT_RUNS = 4

#: How much is done for a plan: as much as one run is worth, or several runs, or a search in any case; or another plan
#: than the propagated one is wanted.
Effort: TypeAlias = Literal["once", "again", "always", "other"]


def partition(
    graph: Graph,
    env: Environment,
    limits: Limits,
    rates: Rates,
    inputs: Mapping[int, Sharding],
    effort: Effort = "once",
    objective: Literal["time", "paper"] = "time",
) -> tuple[Plan, Mapping[int, Sharding]]:
    """Return the plan of a graph, and how host arrays are cut that it needs and that lie nowhere yet.

    Parameters
    ----------
    graph, env
        Canonical nodes, and their environment.
    limits
        What bounds the size of tiles.
    rates
        What moving and computing cost.
    inputs
        By number of the node how each of them is cut if nothing speaks for another cut; they lie so in `graph`.
    effort
        ``once``: for the first run; ``again``: for a graph that has come before; ``always``: search, whatever it takes;
        ``other``: return what the search finds even where the propagated plan is predicted to be faster.
    objective
        ``time``: predicted seconds. ``paper``: every loop has the parts for which the paper counts the fewest elements,
        and predicted seconds decide on which members they are.
    """
    plan, is_aligned = propagated(graph, env, limits)
    if env.size == 1 or env.team is None or is_aligned or _has_owners(graph):
        return plan, inputs
    if effort == "once" and objective == "time":
        if _is_small(graph, limits):
            return plan, inputs
        if COUNT_SECONDS * len(plan.stages) > WORTH * _most_seconds(plan, graph, env.size, rates):
            return replace(plan, is_provisional=True), inputs
    problem = PartitionProblem(graph, env.team.mesh, limits, rates, plan.stages, inputs)
    baseline = problem.place(plan.stages)
    if objective == "paper":
        return _as_in_the_paper(plan, problem, baseline)
    if effort in ("once", "again"):
        gain, needed = _possible_gain(problem, baseline), _search_seconds(problem)
        if gain <= NEGLIGIBLE * baseline.price or needed > RUNS * gain:
            return plan, inputs
        if effort == "once" and needed > (INPUT_RUNS * gain if inputs else WORTH * baseline.price):
            return replace(plan, is_provisional=True), inputs
    return _searched(plan, problem, baseline, is_other=effort == "other")


def _has_owners(graph: Graph) -> bool:
    """Return whether somebody said of an array which member holds each of its tiles."""
    lies = [node.pin if node.memo is None else node.memo.sharding for node in graph.nodes]
    return any(sharding is not None and sharding.mesh.owners is not None for sharding in lies)


def _is_small(graph: Graph, limits: Limits) -> bool:
    """Return whether every array fits one block, so that there is nothing to cut."""
    return all(node.nbytes <= limits.block for node in graph.nodes)


def _most_seconds(plan: Plan, graph: Graph, n_members: int, rates: Rates) -> float:
    """Return the seconds that sending all operands everywhere would take: cheap to say, and hardly ever exceeded."""
    if not rates.bandwidth:
        return 0.0
    nbytes = sum([graph.nodes[access.node].nbytes for stage in plan.stages for access in stage.reads])
    return float(rates.transfer_seconds(len(plan.stages), nbytes * n_members))


def _possible_gain(problem: PartitionProblem, baseline: ResolvedStages) -> float:
    """Return the seconds by which another plan could be faster: what is sent, and computed by few members."""
    return baseline.price - sum(_own_seconds(problem, baseline))


def _search_seconds(problem: PartitionProblem) -> float:
    """Return what the search takes, about."""
    n_axes = len(prime_factors(problem.mesh.size))
    states = [min(MAX_STATES, max(1, len(facts.free)) ** n_axes) for facts in problem.facts]
    return float(sum([STAGE_SECONDS + TRIPLE_SECONDS * n**3 for n in states]))


def _searched(
    plan: Plan, problem: PartitionProblem, baseline: ResolvedStages, *, is_other: bool
) -> tuple[Plan, Mapping[int, Sharding]]:
    started = time.perf_counter()
    found, how = _best(problem, baseline)
    alternatives = [_described("propagation", baseline)]
    branched = _branched(problem, baseline, found)
    if branched is not found:
        alternatives.append(_described("eindecomp, every stage by all members", found))
        found = branched
    text = f"{how} search in {(time.perf_counter() - started) * 1e3:.0f} ms"
    if not is_other and not _is_better(found, baseline):
        return replace(plan, alternatives=(f"{_described('eindecomp', found)}, {text}",)), problem.inputs
    return Plan(found.stages, plan.outputs, "eindecomp", tuple(alternatives)), found.inputs


def _branched(problem: PartitionProblem, baseline: ResolvedStages, found: ResolvedStages) -> ResolvedStages:
    """Return a plan in which branches go to a part of the members each, if one is better by more than next to
    nothing.
    """
    corners: Corners = {}
    n_tried = 0
    for more in branchings(problem, found, _search_seconds(problem)):
        if n_tried < MAX_BRANCHINGS and not more.keys() & corners.keys():
            n_tried += 1
            branched, _ = _best(problem, baseline, corners={**corners, **more})
            if _is_better(branched, found, NEGLIGIBLE):
                found, corners = branched, {**corners, **more}
    return found


def _as_in_the_paper(
    plan: Plan, problem: PartitionProblem, baseline: ResolvedStages
) -> tuple[Plan, Mapping[int, Sharding]]:
    graph = ein_graph(problem.graph, problem.facts, baseline.shardings, problem.outside)
    if graph is None:
        return plan, problem.inputs
    chosen = eindecomp.plan(graph, p=problem.mesh.size, objective="paper", splits="any")
    splits = {}
    for facts in problem.facts:
        d = chosen.splits.get(f"s{facts.number}", {})
        if facts.free and facts.pinned < 0 and not facts.is_written:
            splits[facts.number] = tuple([d.get(f"l{i}", 1) for i in range(len(facts.loops.extents))])
    found, _ = _best(problem, baseline, splits=splits)
    alternatives = (
        _described("propagation", baseline),
        f"{chosen.cost} elements in the paper's count, {chosen.search}",
    )
    return Plan(found.stages, plan.outputs, "eindecomp", alternatives), found.inputs


def _best(
    problem: PartitionProblem,
    baseline: ResolvedStages,
    splits: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    corners: Corners = MappingProxyType({}),
) -> tuple[ResolvedStages, str]:
    """Return the best plan that the search finds, and how it was found."""
    variables, made = variables_of(problem, baseline, splits, corners)
    found: tuple[ResolvedStages, str] | None = None
    for chosen, searched in choose(variables, made, problem.outside, problem.costs):
        cuts: dict[int, tuple[Cut | None, Sharding]] = {}
        inputs: dict[int, Sharding] = {}
        for v, k in zip(variables, chosen, strict=True):
            state = v.states[k]
            if v.node >= 0:
                inputs[v.node] = state.lies[v.node][0]
            for facts in v.stages:
                cuts[facts.number] = (state.cut if facts is v.stages[0] else None), state.loops[facts.number]
        placed = problem.place(problem.said(baseline.stages, cuts, inputs), inputs)
        if found is None or _is_better(placed, found[0]):
            found = placed, searched
    assert found is not None
    return found


def _is_better(found: ResolvedStages, baseline: ResolvedStages, by: float = 0.0) -> bool:
    return found.price < (1 - by) * baseline.price


def _described(name: str, placed: ResolvedStages) -> str:
    return f"{name}: {format_nbytes(placed.nbytes)} moved, {format_seconds(placed.seconds)} predicted"
