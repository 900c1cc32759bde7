"""The objective ``time``, phase 2: candidates are placed, counted, and the fastest that fits is kept.

Layouts of inputs that lie as the plan likes follow from how the operations are cut (`input_layouts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from distarray.errors import MemoryBudgetError
from distarray.planner.eindecomp.axis_cuts import AxisCut
from distarray.planner.eindecomp.candidates import Kernels, Options
from distarray.planner.eindecomp.counting import GraphCount, count
from distarray.planner.eindecomp.eingraph import EinGraph
from distarray.planner.eindecomp.elimination import MAX_ENTRIES
from distarray.planner.eindecomp.kernel_placement import ROUNDS, KernelPlacement
from distarray.planner.eindecomp.kernel_room import KernelRoom, NoRoom
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.paper_costs import Splits, n_kernels, result_parts, wanted_parts
from distarray.planner.eindecomp.problems import PaperProblem, exact, linearised, tree
from distarray.planner.eindecomp.seconds import TimeProblem, edge_seconds
from distarray.sharding.prime import prime_factors


def input_layouts(
    graph: EinGraph, splits: Mapping[str, Splits], machine: Machine, *, even: bool
) -> dict[str, tuple[AxisCut, ...]]:
    """Return one layout for every input.

    Prescribed ones stay. An input that must be cut like a result is. Every other one lies in the cut of one of its
    readers, that for which reading it takes the fewest seconds, and in more parts of the same if there are workers
    that would hold none of it.

    Parameters
    ----------
    even
        Whether all workers must hold a share of every input, whatever that costs in messages.
    """
    found: dict[str, tuple[AxisCut, ...]] = {u: a.layout for u, a in graph.inputs.items() if a.layout is not None}
    for u in graph.inputs:
        if u in found:
            continue
        group = graph.tied.get(u, (u,))
        made = [found[w] for w in group if w in found]
        made += [result_parts(graph.ops[w], splits[w]) for w in group if w in graph.ops]
        if made:
            found[u] = made[0]
            continue
        cut = _fastest(graph, splits, group, machine)
        found |= {w: spread(graph, cut, group, splits, machine, even) for w in group}
    return found


def _fastest(graph: EinGraph, splits: Mapping[str, Splits], group: Sequence[str], machine: Machine) -> tuple[int, ...]:
    """Return, of the cuts in which arrays are read, the one from which reading them takes the fewest seconds."""
    reads = [(u, v, wanted_parts(graph.ops[v], splits[v], i)) for u in group for v, i in graph.reads[u]]
    cuts = sorted({cut for _, _, cut in reads})
    if len(cuts) < 2:
        return cuts[0] if cuts else (1,) * len(graph.shape(group[0]))
    total = np.zeros(len(cuts))
    for u, v, wanted in reads:
        array = graph.inputs[u]
        kernels = np.array([n_kernels(splits[v])])
        total += edge_seconds(array.shape, array.itemsize, np.array(cuts), np.array([wanted]), kernels, machine)[:, 0]
    return cuts[int(np.argmin(total))]


def spread(
    graph: EinGraph,
    cut: tuple[int, ...],
    group: Sequence[str],
    splits: Mapping[str, Splits],
    machine: Machine,
    even: bool,
) -> tuple[int, ...]:
    """Return a layout in more parts, nested in `cut`, so that every worker that reads an array holds a share of it.

    Where an array is read whole by many, each of them then fetches the shares of the others, and none the whole from
    one. It is done where the share that it holds already takes longer to fetch than the additional messages.
    """
    shape = graph.shape(group[0])
    readers = [n_kernels(splits[v]) for u in group for v, _ in graph.reads[u]]
    factor = min(machine.p, max(readers, default=machine.p)) // prod(cut)
    if even:
        factor = machine.p // prod(cut)
    nbytes = max(graph.inputs[u].nbytes for u in group)
    saved = machine.mean_byte_seconds * nbytes / (factor * prod(cut)) if factor > 1 else 0.0
    if factor <= 1 or not (even or saved > machine.message_seconds * (factor - 1)):
        return cut
    parts = list(cut)
    for prime in reversed(prime_factors(factor)):
        axes = [a for a, n in enumerate(shape) if parts[a] * prime <= n]
        if axes:
            widest = max(axes, key=lambda a: (shape[a] / parts[a], -a))
            parts[widest] *= prime
    return tuple(parts)


#: As long as what is placed needs more than it may, plans are searched for under a limit that is tightened so often ..
TIGHTER = 4
#: .. and among cuts whose results lie evenly on the workers (`KernelRoom.slack`).
SLACKS = (np.inf, 0.0)
#: Searches for the smallest limit, where nothing fits the one that is given.
SMALLER = 16
#: Plans whose predicted seconds differ by less than this share are equally fast: that which moves fewer bytes is kept.
EQUAL = 1e-9

Labelling = Mapping[str, Splits]


@dataclass(frozen=True, slots=True)
class Limit:
    """A Limit says how many bytes a worker may use; None: as many as it likes."""

    nbytes: float | None = None

    def admits(self, counted: GraphCount) -> bool:
        """Return whether a placed graph stays within it."""
        return self.nbytes is None or counted.peak_bytes <= self.nbytes


@dataclass(frozen=True, eq=False)
class PricedGraph:
    """A PricedGraph is a graph whose cuts are chosen and whose kernels have workers, with what it costs."""

    splits: Labelling
    placement: KernelPlacement
    count: GraphCount


def placed(graph: EinGraph, splits: Labelling, machine: Machine, limit: Limit = Limit()) -> PricedGraph:
    """Return a labelled graph with its kernels and blocks on workers, and its cost; the same for equal arguments.

    Under a limit that copies do not fit they are streamed, and if that does not suffice inputs are spread over all
    workers. What still does not fit is returned all the same.
    """
    found = None
    for even in (False, True) if limit.nbytes is not None else (False,):
        placement, counted = _improved(graph, splits, machine, even)
        for streamed in (False, True):
            if streamed:
                counted = count(placement, streamed=True)
            if found is None or counted.peak_bytes < found.count.peak_bytes:
                found = PricedGraph(splits, placement, counted)
            if limit.admits(counted):
                return PricedGraph(splits, placement, counted)
    assert found is not None
    return found


def _improved(graph: EinGraph, splits: Labelling, machine: Machine, even: bool) -> tuple[KernelPlacement, GraphCount]:
    """Return a plan placed, and placed again as long as that saves time or bytes."""
    placement = KernelPlacement(graph, machine, splits, input_layouts(graph, splits, machine, even=even))
    placement.place()
    best = count(placement)
    for _ in range(ROUNDS):
        before = placement.snapshot()
        placement.place_again()
        again = count(placement)
        if _rank(again) >= _rank(best):
            placement.restore(before)
            break
        best = again
    return placement, best


def _rank(counted: GraphCount) -> tuple[float, int]:
    return counted.seconds, counted.moved_bytes


def fastest(graph: EinGraph, options: Options, machine: Machine, search: str, limit: Limit) -> tuple[PricedGraph, str]:
    """Return the plan with the fewest predicted seconds that fits, and the search that was really used.

    Raises
    ------
    ShardingError
        If equalities cannot be satisfied, or the tree search is asked of a graph that is none.
    MemoryBudgetError
        If nothing fits.
    """
    if limit.nbytes is None:
        return _best(TimeProblem(graph, options, machine), search, limit)
    try:
        return _under_limit(graph, options, machine, search, limit)
    except _NothingFits as refused:
        op = refused.args[0]
        needed = _smallest(graph, options, machine, search, limit, refused)
        raise MemoryBudgetError(
            f"op {op!r} needs more than the {limit.nbytes:.0f} bytes on a worker that are allowed; the smallest limit "
            f"for which there is a plan with {machine.p} workers is {needed} bytes"
        ) from None


class _NothingFits(Exception):
    """A _NothingFits is raised where no plan that was found keeps to the limit.

    Its arguments are the operation that needs most, and the bytes that the best plans of each kind need.
    """


def _under_limit(
    graph: EinGraph, options: Options, machine: Machine, search: str, limit: Limit
) -> tuple[PricedGraph, str]:
    """Return the fastest plan that is found to fit, under a limit that is tightened until one does."""
    assert limit.nbytes is not None
    free, used = _best(TimeProblem(graph, options, machine), search, limit)
    if limit.admits(free.count) and not free.count.streamed:
        return free, used
    least = free
    for slack in SLACKS:
        allowed = limit.nbytes
        for _ in range(TIGHTER):
            try:
                room = KernelRoom(graph, options, allowed, slack)
                found, used = _best(TimeProblem(graph, options, machine, room), search, limit)
            except NoRoom:
                break
            if limit.admits(found.count):
                return (found if _is_better(found.count, free.count, limit) else free), used
            least = _smaller(found, least)
            allowed -= max(found.count.peak_bytes - limit.nbytes, 0.01 * limit.nbytes)
    if limit.admits(free.count):
        return free, used
    last = _last_resort(graph, options, machine, limit)
    if limit.admits(last.count):
        return last, "fallback"
    raise _NothingFits(_smaller(last, least).count.fullest, [x.count.peak_bytes for x in (least, last, free)])


def _smallest(
    graph: EinGraph, options: Options, machine: Machine, search: str, limit: Limit, refused: _NothingFits
) -> int:
    """Return the smallest limit for which a plan is found.

    What is found under one limit may not be found under another, though it would fit: every limit is tried.
    """

    def needed_under(nbytes: int) -> int:
        found, _ = _under_limit(graph, options, machine, search, replace(limit, nbytes=nbytes))
        return found.count.peak_bytes

    smallest = needed = 0
    for smallest in sorted(refused.args[1]):  # the largest will do
        with suppress(_NothingFits):
            needed = needed_under(smallest)
            break
    with suppress(_NothingFits):
        for _ in range(SMALLER):
            less = min(needed, smallest - 1)
            needed, smallest = needed_under(less), less
    return smallest


def _smaller(a: PricedGraph, b: PricedGraph) -> PricedGraph:
    return a if a.count.peak_bytes < b.count.peak_bytes else b


def _last_resort(graph: EinGraph, options: Options, machine: Machine, limit: Limit) -> PricedGraph:
    """Return every operation in the waves and parts in which it needs least."""
    assert limit.nbytes is not None
    room = KernelRoom(graph, options, limit.nbytes)
    problem = TimeProblem(graph, options, machine)
    splits = {v: dict(zip(op.labels, map(int, room.least(v, problem.rows(v))))) for v, op in graph.ops.items()}
    return placed(graph, splits, machine, limit)


def _best(problem: TimeProblem, search: str, limit: Limit) -> tuple[PricedGraph, str]:
    """Return the fastest of the candidates that fit, or the one that needs least if none does."""
    used, best = search, None
    seen = []
    for splits, how in _candidates(problem, search):
        used = how or used
        if splits in seen:
            continue
        seen.append(splits)
        found = placed(problem.graph, splits, problem.machine, limit)
        if best is None or _is_better(found.count, best.count, limit):
            best = found
    assert best is not None
    return best, used


def _is_better(a: GraphCount, b: GraphCount, limit: Limit) -> bool:
    """Return whether one is faster, or the only one that fits, or needs less where none does."""
    if not limit.admits(a) or not limit.admits(b):
        return a.peak_bytes < b.peak_bytes
    if abs(a.seconds - b.seconds) > EQUAL * b.seconds:
        return a.seconds < b.seconds
    return a.moved_bytes < b.moved_bytes


def _candidates(problem: TimeProblem, search: str) -> Iterator[tuple[Labelling, str]]:
    """Yield labellings to be placed; with the first the search that was really used."""
    if search == "tree":
        yield tree(problem), "tree"
        return
    if search == "linearised":
        yield linearised(problem), "linearised"
        return
    yield exact(problem, MAX_ENTRIES)
    yield linearised(problem), ""
    counts = sorted({n for found in problem.counts.values() for n in found}) or [problem.options.p]
    kinds: tuple[Kernels, ...] = ("equal",) if problem.options.kernels == "equal" else ("equal", "upto")
    for n in counts[-2:]:
        for kernels in kinds:
            found = exact(PaperProblem(problem.graph, replace(problem.options, p=n, kernels=kernels)))[0]
            if all(n_kernels(found[v]) in problem.states[v].kernels for v in problem.counts):
                yield found, ""
