"""Plans that fit: what a plan would hold on a member is counted, and where that is too much it is made to stream.

Nothing is estimated: a plan is lowered, and `liveness` walks through its tasks. So this costs a lowering for each plan
that is tried, and only graphs that might hold more than the limit come this far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.expr.expr import Environment
from distarray.lower.liveness import Liveness, Standing, liveness
from distarray.lower.template import Lowered
from distarray.planner.graph import Graph
from distarray.planner.plan import Limits, Plan, Stage
from distarray.planner.rates import current_rates
from distarray.runtime.instantiate import make_tasks_once
from distarray.runtime.members import executor_for
from distarray.runtime.memory import STREAMED, is_limit_set, limits_to_try, n_tasks_at_once
from distarray.runtime.task_graph import read_from_outside
from distarray.runtime.wire import EMBED_NBYTES
from distarray.scoped import Scoped

if TYPE_CHECKING:
    from distarray.planner.partition.resolved import PartitionProblem

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
#: A limit below the one that is to hold may take one in so many of these tasks.
LESS_TRIED = 2


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


def fitted(plan: Plan, graph: Graph, env: Environment, limits: Limits, *, is_kept: bool = True) -> Plan:
    """Return the plan, or one like it with streams (`planner.streams`), so that no member holds more than its limit.

    Parameters
    ----------
    plan, graph
        A plan for this graph.
    limits
        What members may hold; what lies there already counts.
    is_kept
        Whether results stay: else each tile is gone when it is made, as where it is written to a file.

    Returns
    -------
    Of the plans that were tried the first that fits, else the one that exceeds the limit least, and says so (`above`).
    """
    tries = limits_to_try(limits.member, env, is_worker=env.is_cluster)
    if sum(node.nbytes for node in graph.nodes) <= tries[0]:  # even all of it at one member
        return plan
    trials = _Trials(plan, graph, env, limits, is_kept=is_kept)
    # What no plan can keep to is not tried for.
    if is_limit_set(env) and trials.kept_nbytes >= limits.member * env.size:
        return _marked(plan, trials.held(plan), limits)
    if len(tries) > 1:
        floor = trials.floor(plan)
        tries = tuple([n for n in tries if n >= floor]) or tries[-1:]
    first = trials.within(tries[0])
    if tries[0] < limits.member:
        first.n_left //= LESS_TRIED  # it would be good, and need not be
    before, held, found = _searched(plan, first)
    for member in tries[1:]:
        if not held.excess:
            break
        # The limits are guesses. What fits into a larger one is better than what is above a smaller one by least.
        _, other, least = _searched(plan, trials.within(member))
        if not other.excess or other.peak < held.peak:
            held, found = other, least
    if found is not plan:
        text = f"no streams: {before.peak / 1e6:.3g} MB held by a member"
        found = replace(found, alternatives=(*plan.alternatives, text))
    return _marked(found, held, limits)


def _marked(plan: Plan, held: _Held, limits: Limits) -> Plan:
    return replace(plan, above=(held.peak, held.stage)) if held.peak > limits.member else plan


def _searched(plan: Plan, trials: _Trials) -> tuple[_Held, _Held, Plan]:
    """Return what a plan holds, and what the best with streams does: the first that fits, else that with the least
    excess.

    Of all that was tried what exceeds the limit least is streamed further: what gains most at once may lead nowhere.
    """
    before = trials.held(plan)
    number = count()
    pending = [(before, next(number), plan)]
    best = pending[0]
    seen = {plan.stages}
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
    return before, best[0], best[2]


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


class _Trials:
    """A _Trials lowers plans of one graph to see what they hold, remembers it, and stops when its number of tasks is
    used up.

    Parameters
    ----------
    plan
        The first one; how long it takes decides how many tasks may be tried.
    is_kept
        See `fitted`.
    """

    def __init__(self, plan: Plan, graph: Graph, env: Environment, limits: Limits, *, is_kept: bool) -> None:
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
        #: What the plans that were tried hold.
        self._known: dict[tuple[Stage, ...], tuple[Liveness, int]] = {}

    def within(self, member: int) -> _Trials:
        """Return trials under another limit, with as many tasks; what is known already is not lowered again."""
        other = copy(self)
        other.limits = replace(self.limits, member=member)
        other.n_left = self.n_tasks
        return other

    def floor(self, plan: Plan) -> int:
        """Return the bytes that a member holds by any plan: what lies there, and of all that and what is kept an even
        share.
        """
        self.held(plan)
        resident = self._known[plan.stages][0].resident
        at_members = sum([nbytes for m, nbytes in resident.items() if m < self.env.size])
        return max(max(resident.values(), default=0), (at_members + self.kept_nbytes) // self.env.size)

    def planning(self, plan: Plan) -> PartitionProblem:
        """Return the facts of a plan."""
        from distarray.planner.partition.resolved import PartitionProblem  # not loaded by those whose arrays are small

        mesh = self.env.mesh
        return PartitionProblem(self.graph, mesh, self.limits, current_rates(), plan.stages)

    def held(self, plan: Plan) -> _Held:
        """Return what members hold of blocks."""
        if plan.stages not in self._known:
            env = self.env
            lowered = make_tasks_once(plan, self.graph, env)
            lowered = lowered if self.is_kept else replace(lowered, outputs={})
            cost = sum(lowered.counts.values()) + _n_parts(lowered) // PARTS_PER_TASK
            self._known[plan.stages] = peaks_of(lowered, self.graph, env), cost
            self.n_left -= cost
        found, cost = self._known[plan.stages]
        peak, stage = found.worst
        excess = sum(max(0, n - self.limits.member) for n in (peak, *found.stage_peak.values()))
        return _Held(excess, peak, stage, cost)


def _n_parts(lowered: Lowered) -> int:
    """Return the parts of tiles that tasks read."""
    return sum([len(want.fragments) for draft in lowered.drafts for tile in draft.tiles for want in tile.wants])


def _streamed(plan: Plan, held: _Held, trials: _Trials, seen: set[tuple[Stage, ...]]) -> Iterator[tuple[_Held, Plan]]:
    """Yield plans with one stream more, and what they hold: for each loop in as many waves as gain.

    Parameters
    ----------
    held
        What the plan holds without.
    seen
        Stages of plans that were tried: a stream may be found from several heads.
    """
    from distarray.planner.streams import Streams  # not loaded by those whose arrays are small

    streams = Streams(plan, trials.planning(plan), trials.limits.member // STREAMED)
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
