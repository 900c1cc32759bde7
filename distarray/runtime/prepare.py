"""What stands between pending nodes and their tasks: plans, with host arrays as they will be cut, held to memory.

What is prepared runs (`running`), is looked at (`explain`, checks), or is taken along by others (`exports`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr, Others
from distarray.lower.template import Lowered
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.runtime.donation import inplace_results
from distarray.runtime.hosts import graph_as_cut, host_cuts, put
from distarray.runtime.instantiate import Instance, instance_of
from distarray.runtime.planning import checked, context_of, found_plan, is_ample
from distarray.runtime.progress import planning
from distarray.runtime.retention import retained
from distarray.runtime.small import is_small
from distarray.sharding.sharding import Sharding


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
        plan = checked(graph, env, others) if is_checked else found_plan(graph, env, is_kept=is_kept)
    return Prepared(plan, graph, env, order, wanted, cuts)


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
    kept_too = retained(order, {*aimed, *stand_ins}, env, others, is_rehearsed=True)
    found = prepare(order, aimed | kept_too, env, stand_ins, is_checked=False)
    inplace = {} if env.is_cluster else inplace_results(found.plan, found.graph, order, others)
    return found, found.instance("rehearsal", inplace)


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
