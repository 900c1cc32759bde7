"""What stands between pending nodes and their tasks: plans, with host arrays as they will be cut, held to memory.

What is prepared runs (`running`), is looked at (`explain`, checks), or is taken along by others (`exports`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from distarray.errors import MemoryBudgetError
from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr, Others
from distarray.lower.template import Lowered
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.runtime.donation import inplace_results
from distarray.runtime.held import peaks_of
from distarray.runtime.hosts import graph_as_cut, host_cuts, put
from distarray.runtime.instantiate import Instance, instance_of
from distarray.runtime.memory import is_limit_set, memory_limit
from distarray.runtime.planning import checked, context_of, found_plan, is_ample
from distarray.runtime.progress import planning
from distarray.runtime.retention import retained, written
from distarray.runtime.small import is_small
from distarray.sharding.sharding import Sharding

#: Bytes of results up to which blocks are taken over: Ctrl-C waits for writes in place, so they take a second at most,
#: or so many times the largest of the results: a few operations are no longer here than in numpy.
INPLACE_NBYTES = 8 << 30
INPLACE_STEPS = 4


class Prepared(NamedTuple):
    """A Prepared is an evaluation that is planned, of which nothing has been sent or run.

    Parameters
    ----------
    plan, graph, env
        Of the nodes; in the graph others stand in for host arrays and for what is to come from other environments.
    order
        All nodes needed, operands before users.
    wanted
        ``id`` of the nodes whose results are kept.
    cuts
        By ``id`` how host arrays are cut when they are sent.
    """

    plan: Plan
    graph: Graph
    env: Environment
    order: Sequence[Expr]
    wanted: set[int]
    cuts: Mapping[int, Sharding]

    @property
    def hosts(self) -> list[Expr]:
        """Return the host arrays that are to be sent."""
        return [n for n in self.order if id(n) in self.cuts]

    @property
    def kept(self) -> list[Expr]:
        """Return the nodes whose results are kept, by the numbers of ``plan.outputs``."""
        return [self.order[i] for i in self.plan.outputs]

    def sent(self) -> Prepared:
        """Send the host arrays, and return the evaluation with their blocks."""
        if not self.cuts:
            return self
        put(self.hosts, self.cuts)
        return self._replace(graph=canonical(self.order, self.wanted, context_of(self.env)), cuts={})

    def instance(self, run: str, inplace: Mapping[int, int] = MappingProxyType({})) -> Instance:
        """Return a run of it; `run` names its tasks, for `inplace` see `lower`."""
        return instance_of(self.plan, self.graph, self.env, run, inplace)

    def lowered(self, run: str) -> Lowered:
        """Return the tasks; `run` names them."""
        return self.instance(run).lowered


def prepare(
    order: Sequence[Expr],
    wanted: set[int],
    env: Environment,
    stand_ins: Mapping[int, Expr] = MappingProxyType({}),
    others: Others = tuple,
    *,
    is_checked: bool = True,
    is_kept: bool = True,
) -> Prepared:
    """Plan the evaluation of nodes of one environment, with host arrays as they will be cut. Nothing is sent.

    Parameters
    ----------
    order, wanted, stand_ins
        See `Prepared` and `crossings.foreseen`.
    is_checked
        Whether members must be able to hold what is read, made and kept.
    is_kept
        See `fitted`; what is not is not checked.

    Raises
    ------
    MemoryBudgetError
        If they are to, and cannot.
    """
    cuts = host_cuts(order, wanted, env, stand_ins)
    graph = graph_as_cut(order, wanted, env, stand_ins, cuts)
    with planning():
        if is_checked:
            plan = _checked(graph, env, order, others)
        else:
            plan = found_plan(graph, env, is_kept=is_kept)
    return Prepared(plan, graph, env, order, wanted, cuts)


def taken_over(plan: Plan, graph: Graph, env: Environment, order: Sequence[Expr], others: Others) -> Mapping[int, int]:
    """Return which results are made in the blocks of what they are made of: see `donation.inplace_results`."""
    made = [n.nbytes for n in order if n.memo is None]
    is_long = sum(made) > max(INPLACE_NBYTES, INPLACE_STEPS * max(made, default=0))
    found = {} if env.is_cluster or is_long else inplace_results(plan, graph, order, others)
    # A block that is taken over stays until its last reader: where that is more than a limit, and copies are not, it is
    # none.
    is_tight = bool(found) and plan.above is None and is_limit_set(env)
    return {} if is_tight and _peak(plan, graph, env, found) > memory_limit(env) else found


def _peak(plan: Plan, graph: Graph, env: Environment, inplace: Mapping[int, int]) -> int:
    """Return the most bytes that a member of this process holds where results are made in the blocks of others."""
    return peaks_of(instance_of(plan, graph, env, "budget", inplace).lowered, graph, env).worst[0]


def _checked(graph: Graph, env: Environment, order: Sequence[Expr], others: Others) -> Plan:
    """Return the plan of a graph that its members can hold: in this process, with results in the blocks of others.

    Raises
    ------
    MemoryBudgetError
        If they cannot.
    """
    try:
        return checked(graph, env, others)
    except MemoryBudgetError:
        if env.is_cluster:
            raise
        plan = found_plan(graph, env)
        inplace = taken_over(plan, graph, env, order, others)
        if not inplace or _peak(plan, graph, env, inplace) > memory_limit(env):
            raise
        return plan


def check(
    env: Environment, order: Sequence[Expr], wanted: set[int], stand_ins: Mapping[int, Expr] = MappingProxyType({})
) -> None:
    """Check that members can hold what these nodes need: see `evaluate.check`."""
    if not is_ample(order, env):
        prepare(order, wanted, env, stand_ins)


def rehearsed(
    targets: Sequence[Expr], stand_ins: Mapping[int, Expr], others: Others = tuple
) -> tuple[Prepared, Instance] | None:
    """Plan and lower pending targets of one environment as `evaluate` would; None if all is small. Nothing runs.

    Parameters
    ----------
    stand_ins
        Of the crossings that they need, and of what is evaluated before: see `crossings.foreseen`.
    """
    env = targets[0].env
    order = order_of(targets, stand_ins)
    if is_small([stand_ins.get(id(n), n) for n in order], env):
        return None
    aimed = {id(t) for t in targets}
    kept_too, _ = retained(order, {*aimed, *stand_ins}, env, others)
    found = prepare(order, aimed | kept_too, env, stand_ins, is_checked=False)
    if kept_too and (least := aimed | written(order, aimed)) != aimed | kept_too and not _fits(found, others):
        # What nobody asked for is kept where there is room for it, as in `evaluate`.
        found = prepare(order, least, env, stand_ins, is_checked=False)
    return found, found.instance("rehearsal", taken_over(found.plan, found.graph, env, order, others))


def _fits(found: Prepared, others: Others) -> bool:
    """Return whether members can hold what was planned."""
    if is_ample(found.order, found.env):
        return True
    try:
        _checked(found.graph, found.env, found.order, others)
    except MemoryBudgetError:
        return False
    return True


def order_of(targets: Sequence[Expr], stand_ins: Mapping[int, Expr]) -> Sequence[Expr]:
    """Return what is planned together with targets, operands before users, up to what others stand in for."""
    order = crossing.graph(targets)
    if not stand_ins:
        return order
    needed, found = {id(t) for t in targets}, []
    for node in reversed(order):
        if id(node) in needed:
            found.append(node)
            if node.memo is None and id(node) not in stand_ins:
                needed.update(map(id, node.nodes()))
    return found[::-1]
