"""Plans that fit: what a plan would hold on a member is counted, and where that is too much it is made to stream.

Nothing is estimated: a plan is lowered, and `liveness` walks through its tasks, `credits` through its programs. So this
costs a lowering for each plan that is tried, and only graphs that might hold more than the limit come this far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from distarray.expr.expr import Environment
from distarray.lower.liveness import Liveness
from distarray.planner.graph import Graph
from distarray.planner.plan import Limits, Plan, Stage
from distarray.planner.rates import current_rates
from distarray.runtime.held import most_held, peaks_of
from distarray.runtime.instantiate import Instance, instance_once
from distarray.runtime.member_runs import held_as_programs
from distarray.runtime.memory import COPIES, STREAMED, Room, is_limit_set, limits_to_try, room_of
from distarray.tables import format_nbytes

if TYPE_CHECKING:
    from distarray.planner.partition.resolved import PartitionProblem
    from distarray.planner.streams import Streams

#: Plans that are streamed further.
MAX_STREAMS = 8
#: Loops that are tried for each.
MAX_HEADS = 6
#: Waves are tried twice as many each time, as long as that gains, up to two to the power of this.
MAX_FINER = 10
#: A stream must lower the excess by this share of it, and so must more waves.
WORTHWHILE = 0.05
#: Tasks of all plans that are tried, and what each takes.
MIN_TASKS = 4_000
MAX_TASKS = 10_000
SECONDS_PER_TASK = 4e-4
#: Parts of operands that take as long as a task: where each tile reads some of all others, there are far more of them.
PARTS_PER_TASK = 16
#: Trying may take this part of the time that a plan takes, by prediction; where the limit was set, as long as it needs.
SEARCH_SHARE = 0.1
#: Bytes of a wave that are at home in the last cache of a processor.
CACHED = 16 << 20
#: Parts of a limit that is set for which plans are searched where none fits that was searched for all of it.
TIGHTER = (2, 8)
#: A limit below the one that is to hold may take one in so many of these tasks.
LESS_TRIED = 2


def fitted(
    plan: Plan,
    graph: Graph,
    env: Environment,
    limits: Limits,
    other: Callable[[], Plan] | None = None,
    *,
    is_kept: bool,
) -> Plan:
    """Return the plan, or one like it with streams (`planner.streams`), so that no member holds more than its limit.

    Parameters
    ----------
    plan, graph
        A plan for this graph.
    limits
        What members may hold; what lies there already counts.
    other
        Makes another plan, which is tried where the first one does not fit: one that moves more, or takes longer, may
        hold less.
    is_kept
        Whether results stay: else each tile is gone when it is made, as where it is written to a file.

    Returns
    -------
    Of the plans that were tried the first that fits: into the limit, or into more than that where the limit is a guess.
    Else of those that run with blocks on disk, or of all, the one that holds least. It says so if it is above the limit
    (`above`).
    """
    tries = limits_to_try(env)
    if most_held(env, graph.nodes, COPIES) <= tries[0]:  # even all of it at one member
        return plan
    trials = _Trials(plan, graph, env, limits, is_kept=is_kept)
    # What no plan can keep to is not tried for.
    if is_limit_set(env) and trials.kept_nbytes >= limits.member * env.size:
        return _marked(plan, trials.held(plan), limits)
    room = None if is_limit_set(env) else room_of(env)
    if room is not None:
        tries = tuple(sorted({min(n, room.held) for n in tries}))
    if len(tries) > 1:
        floor = trials.floor()
        tries = tuple([n for n in tries if n >= floor]) or tries[-1:]
    found: list[tuple[bool, int, Plan]] = []
    begun = [trials]
    # Any that fits into one of the first is better than all others.
    levels: list[list[int | Room]] = [[n for n in tries if n <= limits.member], [n for n in tries if n > limits.member]]
    levels += [] if room is None else [[room]]
    for bounds in levels:
        for number in range(1 if other is None else 2):
            if number == len(begun) and other is not None:
                begun.append(_Trials(other(), graph, env, limits, is_kept=is_kept))
            if number and begun[number].plan.stages == plan.stages:
                continue
            for bound in bounds:
                tried = begun[number].within(bound)
                if isinstance(bound, int) and bound < limits.member:
                    tried.n_left //= LESS_TRIED  # it would be good, and need not be
                held, best = _searched(tried)
                if not held.excess:
                    held, best = _in_cache(tried, held, best)
                begun[number].best = best
                found.append((held.excess > 0, held.peak, _marked(tried.told(best), held, limits)))
                if not held.excess and bound is not room:
                    return found[-1][-1]
    if is_limit_set(env):
        # What is worth a stream depends on the limit: what a lower one finds may fit where this one finds too little.
        for part in TIGHTER:
            tried = trials.within(limits.member // part)
            held, best = _searched(tried)
            found.append((held.peak > limits.member, held.peak, _marked(tried.told(best), held, limits)))
            if held.peak <= limits.member:
                break
    return min(found, key=itemgetter(0, 1))[-1]


def _in_cache(trials: _Trials, held: _Held, plan: Plan) -> tuple[_Held, Plan]:
    """Return a plan with streams that fits, and what it holds; or one like it that fits in more waves: what elementwise
    operations hand on from one to the next stays in a cache where a wave of it does.
    """
    while plan is not trials.plan:
        streams = _streams(plan, trials, CACHED)
        head = streams.handed_on()
        finer = None if head is None else streams.streamed(head, 2)
        if finer is None or trials.n_left < held.cost or (less := trials.held(finer)).excess:
            break
        held, plan = less, finer
    return held, plan


def _marked(plan: Plan, held: _Held, limits: Limits) -> Plan:
    return replace(plan, above=(held.peak, held.stage)) if held.peak > limits.member else plan


def _searched(trials: _Trials) -> tuple[_Held, Plan]:
    """Return what the best of plans with streams holds, and it: the first that fits, else that with the least excess.

    Of all that was tried what exceeds the limit least is streamed further: what gains most at once may lead nowhere.
    """
    number = count()
    pending = [(trials.held(plan), next(number), plan) for plan in trials.begun()]
    heapify(pending)
    best = pending[0]
    seen = {plan.stages for _, _, plan in pending}
    for _ in range(MAX_STREAMS):
        if not best[0].excess or not pending:
            break
        held, _, streamed = heappop(pending)
        for less, tried in _streamed(streamed, held, trials, seen):
            if held.excess - less.excess >= WORTHWHILE * held.excess:
                heappush(pending, (less, next(number), tried))
            if not less.excess:
                break
        best = min([best, *pending[:1]])
    return best[0], best[2]


class _Held(NamedTuple):
    """A _Held counts what members hold.

    Parameters
    ----------
    excess
        Bytes above the limit, summed over stages: a stream lowers those of a few.
    peak, stage
        The most that a member holds at any time, and the stage at which most is held.
    cost
        Of finding this out, in tasks.
    """

    excess: int
    peak: int
    stage: int
    cost: int


class _Counted(NamedTuple):
    """A _Counted is what members would hold for a plan, and how many tasks it took to find out.

    Parameters
    ----------
    forms
        In each form in which it may run: as tasks, and as programs if these gain something.
    """

    forms: list[Liveness]
    cost: int


class _Trials:
    """A _Trials lowers plans of one graph to see what they hold, remembers it, and stops when its number of tasks is
    used up. How long the first plan takes decides how many may be tried.
    """

    def __init__(self, plan: Plan, graph: Graph, env: Environment, limits: Limits, *, is_kept: bool) -> None:
        self.plan = plan
        #: The best under the limit that was tried before, to go on from.
        self.best = plan
        self.is_kept = is_kept
        self.kept_nbytes = sum([graph.nodes[i].nbytes for i in graph.kept]) if is_kept else 0
        self.graph = graph
        self.env = env
        self.limits = limits
        self.n_tasks = MAX_TASKS
        if not is_limit_set(env):
            seconds = self.planning(plan).place(plan.stages).seconds
            self.n_tasks = min(MAX_TASKS, max(MIN_TASKS, int(seconds * SEARCH_SHARE / SECONDS_PER_TASK)))
        self.n_left = self.n_tasks
        #: What tasks may read and make at a time, where blocks may lie on disk meanwhile.
        self.room: Room | None = None
        #: What the plans that were tried hold.
        self._known: dict[tuple[Stage, ...], _Counted] = {}

    def within(self, bound: int | Room) -> _Trials:
        """Return trials under another limit, with as many tasks; what is known already is not lowered again.

        Parameters
        ----------
        bound
            Bytes that members may hold; or what tasks may read and make at a time, while all else lies on disk.
        """
        other = copy(self)
        if isinstance(bound, Room):
            other.room = bound
        else:
            other.limits = replace(self.limits, member=bound)
        other.n_left = self.n_tasks
        return other

    def begun(self) -> list[Plan]:
        """Return the plans to go on from: the first one, and the best that was tried under another limit.

        Not the best where blocks may lie on disk and something is read at positions: each wave reads all of the source.
        """
        is_read_again = self.room is not None and any(stage.family.is_gather for stage in self.plan.stages)
        return [self.plan] if is_read_again else list(dict.fromkeys([self.best, self.plan]))

    def told(self, found: Plan) -> Plan:
        """Return a plan that was tried, which says what the first one holds."""
        if found is self.plan:
            return found
        held = min([form.worst[0] for form in self._known[self.plan.stages].forms])
        text = f"no streams: {format_nbytes(held)} held by a member"
        return replace(found, alternatives=(*found.alternatives, text))

    def floor(self) -> int:
        """Return the bytes that a member holds by any plan: what lies there, and of all that and what is kept an even
        share.
        """
        self.held(self.plan)
        resident = self._known[self.plan.stages].forms[0].resident
        at_members = sum([nbytes for m, nbytes in resident.items() if m < self.env.size])
        return max(max(resident.values(), default=0), (at_members + self.kept_nbytes) // self.env.size)

    def planning(self, plan: Plan) -> PartitionProblem:
        """Return the facts of a plan."""
        from distarray.planner.partition.resolved import PartitionProblem  # not loaded by those whose arrays are small

        mesh = self.env.mesh
        return PartitionProblem(self.graph, mesh, self.limits, current_rates(), plan.stages)

    def held(self, plan: Plan) -> _Held:
        """Return what members hold of blocks: as tasks of Dask, or as programs with credits if that is less and nothing
        lies on disk.
        """
        if plan.stages not in self._known:
            self._known[plan.stages] = self._counted(plan)
            self.n_left -= self._known[plan.stages].cost
        found = self._known[plan.stages]
        if self.room is None:
            return min([self._above(form, found.cost) for form in found.forms])
        tasks, room = found.forms[0], self.room
        made_and_used = [*tasks.largest.values(), *tasks.stage_largest.values()]
        excess = sum([room.excess(made, used) for made, used in made_and_used])
        return self._above(tasks, found.cost)._replace(excess=excess)

    def _above(self, form: Liveness, cost: int) -> _Held:
        peak, stage = form.worst
        excess = sum([max(0, n - self.limits.member) for n in (peak, *form.stage_peak.values())])
        return _Held(excess, peak, stage, cost)

    def _counted(self, plan: Plan) -> _Counted:
        instance = instance_once(plan, self.graph, self.env)
        if not self.is_kept:
            template = instance.template
            template = replace(template, lowered=replace(template.lowered, outputs={}))
            instance = Instance(template, self.graph, self.env, instance.run)
        lowered = instance.lowered
        parts = [want.fragments for draft in lowered.drafts for tile in draft.tiles for want in tile.wants]
        cost = sum(lowered.counts.values()) + sum(map(len, parts)) // PARTS_PER_TASK
        as_programs = held_as_programs(instance) if self.env.is_cluster else None
        as_tasks = peaks_of(lowered, self.graph, self.env)
        return _Counted([as_tasks] if as_programs is None else [as_tasks, as_programs], cost)


def _streams(plan: Plan, trials: _Trials, large: int) -> Streams:
    from distarray.planner.streams import Streams  # not loaded by those whose arrays are small

    return Streams(plan, trials.planning(plan), large)


def _streamed(plan: Plan, held: _Held, trials: _Trials, seen: set[tuple[Stage, ...]]) -> Iterator[tuple[_Held, Plan]]:
    """Yield plans with one stream more, and what they hold: for each loop in as many waves as gain.

    Parameters
    ----------
    held
        What the plan holds without.
    seen
        Stages of plans that were tried: a stream may be found from several heads.
    """
    streams = _streams(plan, trials, trials.limits.member // STREAMED)
    before = dict.fromkeys(streams.heads()[:MAX_HEADS], held)
    for finer in range(1, MAX_FINER):  # of all loops those in few waves come first
        for head in list(before):
            tried = streams.streamed(head, 1 << finer)
            # In twice as many waves it costs as much at least.
            if tried is None or tried.stages in seen or trials.n_left < before[head].cost:
                del before[head]
                continue
            seen.add(tried.stages)
            less = trials.held(tried)
            if not less.excess:
                yield less, tried
                return
            gained, before[head] = before[head].excess - less.excess, less
            if gained >= WORTHWHILE * held.excess:
                yield less, tried
            elif finer > 1:  # two waves may be as good as one, since two are under way
                del before[head]
