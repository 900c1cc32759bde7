"""Plans that are told: every stage of a workload cut as a name says, whatever the planner would choose.

So that plans good and bad can be run and compared with what the planner's model says of them. A told plan takes the
place of the planner's in the cache of plans, from which an evaluation takes it like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from .systems import DISTRIBUTED
from .workloads import Workload, place

if TYPE_CHECKING:
    from distarray.planner.partition.facts import StageFacts
    from distarray.planner.plan import Cut, Plan
    from distarray.sharding.mesh import Mesh

    from .cluster_meter import Job

__all__ = ["SEARCHED", "TOLD", "Style", "Told", "cut_of", "tell", "told_job", "told_of", "told_plan"]

#: What the search finds, by itself.
SEARCHED = "searched"


@dataclass(frozen=True)
class Style:
    """A way to cut any stage.

    Attributes
    ----------
    roles
        Loops that the prime axes of the team's mesh go to, in turn: ``rows`` and ``columns`` are the first and the last
        of the result, ``inner`` is what a product sums over (of other stages the rows). None: one tile, at one member.
    waves
        So many tiles of a member follow each other along the first of these loops.
    """

    roles: tuple[str, ...] = ()
    waves: int = 1


ROWS, COLUMNS, INNER = Style(("rows",)), Style(("columns",)), Style(("inner",))
GRID, ROWS_INNER, COLUMNS_INNER = Style(("rows", "columns")), Style(("rows", "inner")), Style(("columns", "inner"))
ONE = Style()

#: By name the styles of the stages that are no last one, in turn, and that of the last one.
TOLD: Mapping[str, tuple[tuple[Style, ...], Style]] = {
    "rows": ((ROWS,), ROWS),
    "columns": ((COLUMNS,), COLUMNS),
    "grid": ((GRID,), GRID),
    "inner": ((INNER,), ROWS),
    "rows x inner": ((ROWS_INNER,), ROWS),
    "columns x inner": ((COLUMNS_INNER,), COLUMNS),
    "rows, columns in turn": ((ROWS, COLUMNS), ROWS),
    "inner, grid in turn": ((INNER, GRID), GRID),
    "rows in 8 waves": ((Style(("rows",), 8),), ROWS),
    "inner in 8 waves": ((Style(("inner",), 8),), ROWS),
    "grid, gathered": ((GRID,), ONE),
    "one member, rows in turn": ((ONE, ROWS), ROWS),
    "one member": ((ONE,), ONE),
}


def cut_of(style: Style, facts: StageFacts, mesh: Mesh) -> Cut:
    """The cut of a stage in a style."""
    from distarray.planner.plan import Cut, Parts, Whole
    from distarray.sharding.prime import prime_mesh

    if not style.roles:
        return Cut(Whole())
    n = len(facts.loops.extents)
    kept = facts.loops.results[0] if facts.loops.results else tuple(range(n))
    at = {"rows": kept[0], "columns": kept[-1], "inner": (*facts.loops.reduced, kept[0])[0]}
    fine = prime_mesh(mesh)
    dealt: list[list[str]] = [[] for _ in range(n)]
    for number, name in enumerate(fine.names):
        dealt[at[style.roles[number % len(style.roles)]]].append(name)
    parts = Parts(
        parts=tuple([prod(map(fine.axis_size, names)) for names in dealt]),
        axes=tuple([tuple(reversed(names)) for names in dealt]),
        mesh=fine.without_owners(),
    )
    return Cut(parts, waves=((at[style.roles[0]], style.waves),) if style.waves > 1 else ())


def told_plan(plan: Plan, all_facts: Sequence[StageFacts], mesh: Mesh, name: str) -> Plan:
    """A plan with the same stages, cut as the name says; stages whose cut is not free stay."""
    styles, last = TOLD[name]
    stages = list(plan.stages)
    free = [
        f for f in all_facts if f.stage.kind in ("contract", "program") and f.free and f.pinned < 0 and f.leader < 0
    ]
    for number, facts in enumerate(free):
        style = last if facts is free[-1] else styles[number % len(styles)]
        stages[facts.number] = replace(facts.stage, cut=cut_of(style, facts, mesh))
    return replace(plan, stages=tuple(stages), planner=f"told: {name}", alternatives=(), is_provisional=False)


def tell(results: Sequence[Any], name: str) -> None:
    """Let pending results be computed by a told plan; ``searched`` is the best one that the planner's search finds."""
    from distarray import config
    from distarray.planner.cache import PLANS
    from distarray.planner.partition.resolved import PartitionProblem
    from distarray.runtime.known_rates import rates_for
    from distarray.runtime.planning import limits_of, plan_of

    plan, graph, env = plan_of([x.__dx_node__() for x in results])
    if name == SEARCHED:
        return
    mesh = env.mesh
    planning = PartitionProblem(graph, mesh, limits_of(env), rates_for(env), plan.stages)
    PLANS.put(graph.key, told_plan(plan, planning.facts, mesh, name), config.get("plan-cache-size"))


# ------------------------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Told:
    """What the model says of a plan."""

    seconds: float
    bytes_moved: int


def _pending(workload: Workload, operands: Sequence[Any], name: str) -> list[Any]:
    """Results that are to be computed by a plan."""
    import distarray as dx

    with dx.config.set(planner="eindecomp"):
        dx.plan_cache_clear()  # of the same graph with another plan
        results = list(workload.program(dx, *operands))
        tell(results, name)
    return results


def told_of(workload: Workload, names: Sequence[str], parts: int) -> dict[str, Told]:
    """What the model says of plans, by name."""
    import distarray as dx

    system = DISTRIBUTED["distarray-eindecomp"]
    operands = place(system, workload, parts)
    found = {}
    for name in names:
        results = _pending(workload, operands, name)
        with dx.config.set(planner="eindecomp"):
            said = dx.explain(*results)
        found[name] = Told(said.seconds, said.moved_bytes)
    return found


def told_job(workload: Workload, name: str, parts: int) -> Job:
    """A workload with a plan, as `cluster_meter` runs it; placing and planning come before the clock."""
    from .cluster_meter import Job

    system = DISTRIBUTED["distarray-eindecomp"]

    def placed() -> tuple[list[Any], list[Any]]:
        operands = place(system, workload, parts)
        return operands, _pending(workload, operands, name)

    return Job(
        name,
        placed,
        lambda made: system.start(lambda xp, *results: results, made[1]),
        lambda results: system.finish(*results),
        workload.check,
    )
