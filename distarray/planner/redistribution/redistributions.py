"""Plans as the library, the command line and `explain` show them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import lcm, prod
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from distarray.caches import LRUCache
from distarray.errors import MemoryBudgetError, ShardingError
from distarray.planner.rates import Location, Rates, current_rates
from distarray.planner.redistribution.links import MemberMap, placed
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.problem import Problem
from distarray.planner.redistribution.senders import Pieces, lacking, one_each, pieces, wanted
from distarray.planner.redistribution.steps import AllToAll, Exchange, Step
from distarray.planner.redistribution.synthesize import Solution, source_tiles, synthesize, target_tiles
from distarray.planner.redistribution.trace import Moment, boxes
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type, to_json
from distarray.tables import format_table

Mode: TypeAlias = Literal["paper", "fused", "direct", "auto"]
#: How many waves move the array along which dimensions.
Waves: TypeAlias = tuple[tuple[int, int], ...]

#: Bytes of the largest piece in flight.
PIECE_LIMIT = 16 << 20


@dataclass(frozen=True)
class Redistribution:
    """A Redistribution is a plan that takes an array from one type to another, step by step.

    Sizes and costs are elements, per device: a place of the mesh.

    Parameters
    ----------
    shape
        Global shape.
    src, dst
        The types.
    solution
        Steps, for all arrays and meshes that differ in names alone.
    itemsize
        Bytes of an element.
    waves
        (dimension, number) of the waves in which the steps run; one wave if empty.
    placement
        On which members the places lie; None for one on each.
    """

    shape: tuple[int, ...]
    src: Sharding
    dst: Sharding
    solution: Solution
    itemsize: int = 8
    waves: Waves = ()
    placement: MemberMap | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the collectives, in order."""
        return self.solution.steps

    @property
    def mode(self) -> str:
        """Return how the steps were found: ``paper``, ``fused`` or ``direct``."""
        return self.solution.mode

    @property
    def seconds(self) -> float:
        """Return the seconds that planning took."""
        return self.solution.seconds

    @property
    def trace(self) -> list[Moment]:
        """Return what holds before the first step and after each."""
        return self.solution.trace

    @property
    def cost(self) -> int:
        """Return what the steps move (Rink et al. 2021, figure 11)."""
        return sum([m.cost for m in self.trace])

    @property
    def peak(self) -> int:
        """Return the largest tile at any time: the height of the plan."""
        return max([m.size for m in self.trace])

    @property
    def bound(self) -> int:
        """Return the larger of the largest tiles of source and target."""
        return self.solution.problem.bound

    @property
    def buffers(self) -> int:
        """Return what a device at work holds at most, in and out of one step together."""
        sizes = [m.size for m in self.trace]
        return max([a + b for a, b in pairwise(sizes)], default=sizes[0])

    @cached_property
    def received(self) -> IntArray:
        """Return what every device of the target gets from other devices.

        Devices of the source, where that is another team, get nothing: they only slice, or reduce first.
        """
        here = [m.received for m in self.trace if m.is_across == self.trace[-1].is_across]
        total: IntArray = np.sum(here, axis=0)
        return total

    @property
    def lower_bound(self) -> IntArray:
        """Return what every device must get from others, whatever the plan: of its target what it does not hold."""
        return self.solution.lower_bound

    @cached_property
    def messages(self) -> list[IntArray]:
        """Return messages that every member receives, by step. Places of one member need none."""
        return [np.bincount(p.receiver, minlength=self.n_members) for p in self.pieces]

    # What follows counts by member, where several places may lie on one.

    @cached_property
    def pieces(self) -> list[Pieces]:
        """Return what travels between members, by step, and which of the places that hold it sends it."""
        addends = self.solution.addends
        return [pieces(s, a, b, self._where, addends) for s, (a, b) in zip(self.steps, pairwise(self.trace))]

    @property
    def _where(self) -> MemberMap:
        return self.placement or one_each(self.src.mesh.size)

    @property
    def n_members(self) -> int:
        """Return the number of members: of places, where each lies on one of its own."""
        return self._where.n_members

    @cached_property
    def sent_by_member(self) -> IntArray:
        """Return what every member gives to others."""
        return self._by_member([(p.giver, p.size) for p in self.pieces])

    @cached_property
    def received_by_member(self) -> IntArray:
        """Return what every member gets from others."""
        return self._by_member([(p.receiver, p.size) for p in self.pieces])

    @cached_property
    def lower_bound_by_member(self) -> IntArray:
        """Return what every member must get from others, whatever the plan: of its targets what none of its places
        holds.
        """
        solution = self.solution
        if solution.is_reduced_on_the_way:
            return wanted(solution.last, self._where, solution.addends)  # nobody holds a sum
        return lacking(self.trace[0], solution.last, self._where, solution.addends)

    def _by_member(self, counts: Sequence[tuple[IntArray, IntArray]]) -> IntArray:
        total = np.zeros(self.n_members, np.int64)
        for member, size in counts:
            np.add.at(total, member, size)
        return total

    @property
    def memory(self) -> int:
        """Return the bytes that a member needs for source and target, buffers and pieces."""
        return _needed(self, prod([w for _, w in self.waves]))

    @property
    def target(self) -> IntArray:
        """Return the tile index of every device at the end: the target's, or what was chosen where any order would
        do.
        """
        return target_tiles(self.solution.problem)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, which `testing.redistribution_verifier` takes and the command line prints."""
        made: dict[str, Any] = {
            "mesh": _axes(self.src.mesh),
            "src": to_json(self.shape, self.src),
            "dst": to_json(self.shape, self.dst),
            "steps": [self._step_json(step) for step in self.steps],
            "cost": self.cost,
            "peak": self.peak,
            "mode": self.mode,
            "seconds": self.seconds,
            "received": _summary(self.received),
            "lower_bound": _summary(self.lower_bound),
        }
        if self.dst.mesh != self.src.mesh or self.solution.problem.crosses:
            made["dst_mesh"] = _axes(self.dst.mesh)
        if self.waves:
            made["waves"] = [list(w) for w in self.waves]
            made["memory"] = self.memory
        return made

    def _step_json(self, step: Step) -> dict[str, Any]:
        made = step.to_json()
        if isinstance(step, Exchange) and step.crosses:
            made["mesh"] = _axes(self.dst.mesh)  # whose devices the rows are
        return made

    def explain(self) -> str:
        """Return the plan as text: each collective with the tile, the cost, and what the busiest device receives."""
        meshes = [self.src.mesh] if self.dst.mesh == self.src.mesh else [self.src.mesh, self.dst.mesh]
        places = " -> ".join(f"{_sizes(mesh)}, {mesh.size} places" for mesh in meshes)
        head = (
            f"{format_type(self.shape, None, self.src)} -> {format_type(self.shape, None, self.dst)}"
            f"     mesh {places}     mode {self.mode}"
        )
        header = ("step", "collective", "tile", "cost", "received max", "messages max")
        rows = []
        for n, (step, moment, count) in enumerate(zip(self.steps, self.trace[1:], self.messages), 1):
            tile = "[" + ", ".join(map(str, moment.shape)) + "]"
            rows.append((str(n), named(step), tile, str(moment.cost), str(moment.received.max()), str(count.max())))
        problem = self.solution.problem
        others = []
        for mode in ("paper", "fused", "direct"):
            if mode != self.mode and not problem.src_unreduced:
                other = synthesize(problem, mode, placement=self.placement)
                if other.mode == mode:
                    others.append(f"{mode} {sum(m.cost for m in other.trace)}")
        foot = (
            f"cost {self.cost} | peak {self.peak} of bound {self.bound} | buffers {self.buffers} | received max "
            f"{self.received.max()}, lower bound {self.lower_bound.max()}"
            + (" | " + ", ".join(others) if others else "")
        )
        if self.waves:
            waves = ", ".join(f"{w} along dimension {i}" for i, w in self.waves)
            foot += f" | waves {waves}, {self.memory} bytes"
        return "\n".join([head, format_table(header, rows, right=(0, 3, 4, 5)), foot])


def _axes(mesh: Mesh) -> list[list[Any]]:
    return [[name, size] for name, size in zip(mesh.names, mesh.sizes)]


def _sizes(mesh: Mesh) -> str:
    return " ".join(f"{name}={size}" for name, size in zip(mesh.names, mesh.sizes))


def _summary(counts: IntArray) -> dict[str, float]:
    return {"mean": float(counts.mean()), "max": int(counts.max())}


def named(step: Step) -> str:
    """Return a step as people see it: the collective, its dimensions and the number of parts."""
    if isinstance(step, AllToAll):
        return f"alltoall {step.src_dim}->{step.dst_dim} n={step.n}"
    dim = getattr(step, "dim", None)
    n = getattr(step, "n", None)
    return step.op + (f" {dim}" if dim is not None else "") + (f" n={n}" if n is not None else "")


# --------------------------------------------------------------------------------------------------------- plan

_SOLUTIONS: LRUCache[Solution] = LRUCache()


def cache_info() -> Any:
    """Return hits, misses and sizes of the cache of plans."""
    return _SOLUTIONS.info()


def plan(
    shape: Sequence[int],
    src: Sharding,
    dst: Sharding,
    *,
    mode: Mode = "auto",
    memory: int | None = None,
    itemsize: int = 8,
    target_order: Literal["exact", "any"] = "exact",
    rates: Rates | None = None,
    members: Sequence[int] | None = None,
    dst_members: Sequence[int] | None = None,
    locations: Sequence[Location] | None = None,
    cache_size: int = 512,
) -> Redistribution:
    """Return the plan that takes an array of this shape from one type to another.

    Parameters
    ----------
    shape
        Global shape.
    src, dst
        Types. Places with one number are one place, unless the meshes have another number of places or the members
        say otherwise: then the target is another team's.
    mode
        ``paper``, ``fused``, ``direct``, or ``auto``: the fastest of them by `rates`. Where no sequence stays within
        the bound, or one leads to another team, ``paper`` becomes ``fused``, and that ``direct``; the result says what
        was really used.
    memory
        Bytes per member for this redistribution, source and target included: with less the steps run in waves.
    itemsize
        Bytes of an element.
    target_order
        ``any``: the consumer does not mind which device has which tile, so each gets the tile that it holds most of.
    rates
        Of the cluster, for ``auto``; see the option ``calibration``.
    members, dst_members
        On which member, by number, each place of source and target lies; one on each if not given. What places of one
        member exchange costs nothing.
    locations
        Node and process of each member, by its number: anything that tells them apart. All on nodes of their own if
        not given.
    cache_size
        Plans that are remembered.

    Returns
    -------
    Redistribution
        Frozen. A second call with an equal problem is a look-up.

    Raises
    ------
    ShardingError
        If the types are not of one array, the mode is unknown, or a place has no member.
    MemoryBudgetError
        If no number of waves fits into `memory`; it names the smallest that would do.

    References
    ----------
    Rink et al. 2021, sections 4 to 7.

    Examples
    --------
    >>> from distarray.sharding.mesh import Mesh
    >>> mesh = Mesh(("x", "y"), (4, 6))
    >>> found = plan((12, 12), Sharding(mesh, (("x",), ("y",))), Sharding(mesh, (("y",), ("x",))), mode="paper")
    >>> [step.op for step in found.steps], found.cost, found.peak
    (['alltoall', 'alltoall', 'allpermute'], 18, 6)
    """
    if mode not in get_args(Mode):
        raise ShardingError(f"mode {mode!r} is unknown; use one of {', '.join(get_args(Mode))}")
    if target_order not in ("exact", "any"):
        raise ShardingError(f"target_order {target_order!r} is unknown; use exact or any")
    where = placed(src.mesh.size, dst.mesh.size, members, dst_members, locations)
    problem = Problem.of(shape, src, dst, crosses=where is not None and where.src != where.dst)
    if target_order == "any" and not problem.crosses:
        problem = replace(problem, dst_order=_nearest_order(problem))
    rates = rates or current_rates()
    key = (problem, mode, where, (itemsize, rates) if mode == "auto" else None)
    solution = _SOLUTIONS.get(key, lambda: synthesize(problem, mode, itemsize, rates, where), cache_size)
    found = Redistribution(tuple(shape), src, dst, solution, itemsize, placement=where)
    return found if memory is None else _in_waves(found, memory)


def _nearest_order(problem: Problem) -> tuple[int, ...] | None:
    """Return which device's target tile each device should get: a maximum-weight assignment on overlaps."""
    from scipy.optimize import linear_sum_assignment

    if problem.dst_unreduced:
        problem = problem.with_addends()
    a = boxes(source_tiles(problem), problem.shape, problem.src_parts, problem.src_bounds)
    b = boxes(target_tiles(problem), problem.shape, problem.dst_parts, problem.dst_bounds)
    width = np.minimum(a[1][:, None], b[1][None]) - np.maximum(a[0][:, None], b[0][None])
    shared = np.maximum(width, 0).prod(axis=2)
    if problem.n_fixed:
        shared[width[:, :, 0] <= 0] = -1 - shared.sum()  # another addend's tile will never do
    order = tuple(linear_sum_assignment(shared, maximize=True)[1].tolist())
    return None if order == tuple(range(len(order))) else order


# -------------------------------------------------------------------------------------------------------- waves


def _needed(found: Redistribution, w: int) -> int:
    """Return the bytes that a member needs if the steps run in `w` waves."""
    piece = min(PIECE_LIMIT, found.peak * found.itemsize)
    at_rest = (w - 1) * found.bound * found.itemsize
    # of several places one is at work
    others = 0 if found.placement is None else (found.placement.most_places - 1) * found.bound * found.itemsize
    return -(-(at_rest + found.buffers * found.itemsize + piece) // w) + others


def _in_waves(found: Redistribution, memory: int) -> Redistribution:
    if _needed(found, 1) <= memory:
        return found
    room = []
    for i, s in enumerate(found.shape):
        cells = lcm(*[moment.parts[i] for moment in found.trace])
        room.append((s // cells, i))
    room.sort(key=lambda r: (-r[0], r[1]))
    chosen: list[tuple[int, int]] = []
    n = 1
    for most, i in room[:2]:
        if most < 2:
            break
        if _needed(found, n * most) <= memory:  # the more waves, the less
            fewest = bisect_left(range(most), True, 2, key=lambda w: _needed(found, n * w) <= memory)
            return replace(found, waves=(*chosen, (i, fewest)))
        chosen.append((i, most))
        n *= most
    smallest = _needed(found, n)
    raise MemoryBudgetError(
        f"redistribution of {found.shape}: needs at least {smallest} bytes per member, in {n} waves, but memory is "
        f"{memory}"
    )
