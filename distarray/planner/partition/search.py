"""Choosing one state of every variable so that the predicted seconds are fewest.

The cost of a plan is a sum over stages and over what each of them reads (`stage_costs`). Each edge between two
variables is a table over their states, so that variable elimination finds the optimum. In graphs that are too wide for
it a labelling is improved neighbourhood by neighbourhood, as for `dx.plan` (`eindecomp.elimination`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distarray.planner.eindecomp.elimination import Name, Tables, add, hopeful, solved
from distarray.planner.partition.box_traffic import Boxes
from distarray.planner.partition.facts import StageFacts
from distarray.planner.partition.stage_costs import CostModel
from distarray.planner.partition.states import Variable
from distarray.sharding.sharding import Sharding

#: Entries of the largest table of the elimination: beyond, it would take seconds.
MAX_ENTRIES = 4_000_000
#: Costs are integers, of this many to a second; of plans that take as long the one nearer to the baseline is taken.
UNIT = 10**12


class _Tables:
    """A _Tables holds what each state of a variable, and each pair of states of two, costs: integers for the
    elimination.

    Several stages that need the same elements of an array are sent them once, which no sum over pairs can say. So there
    are two kinds of tables: those that charge every reader, and those in which the readers of an array share the costs
    as if all wanted the same.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        made: Mapping[int, Variable],
        outside: Mapping[int, Sharding | None],
        costs: CostModel,
    ) -> None:
        self._made = made
        self._outside = outside
        self._costs = costs
        self.names = {id(v): f"v{n}" for n, v in enumerate(variables)}
        self._own: dict[Name, Any] = {}
        #: (number of the node that is read, its maker's name or None, the reader's name, seconds)
        self._reads: list[tuple[int, str | None, str, Any]] = []
        for v in variables:
            self._add(v)
        self._n_readers = Counter(node for node, _, _, _ in self._reads)

    def _add(self, v: Variable) -> None:
        name = self.names[id(v)]
        own = np.zeros(len(v.states))
        for facts in v.stages:
            if facts.stage.family.is_item:
                continue
            cuts = [state.loops[facts.number] for state in v.states]
            boxes = self._costs.boxes(facts, cuts)
            own = own + self._costs.own_seconds(facts, cuts, boxes).total + self._costs.penalty(facts, boxes)
            for p, r in enumerate(facts.readings):
                if facts.views[p] is not None:
                    self._read(name, v, facts, p, r.node, boxes)
        self._own[name] = own

    def _read(self, name: str, v: Variable, facts: StageFacts, p: int, node: int, boxes: Boxes) -> None:
        """Note what one operand costs, by state of its maker, if it has one, and of its reader."""
        u = self._made.get(node)
        if u is None:
            lying = self._outside[node]
            assert lying is not None
            self._reads.append((node, None, name, self._costs.read_seconds(facts, p, [lying], boxes)[0]))
            return
        each = [state.lies[node][0] for state in u.states]
        distinct = {s: k for k, s in enumerate(dict.fromkeys(each))}
        which = np.array([distinct[s] for s in each])
        table = self._costs.read_seconds(facts, p, list(distinct), boxes)[which]
        if u is v:
            self._reads.append((node, None, name, np.diagonal(table)))
        else:
            self._reads.append((node, self.names[id(u)], name, table))

    @property
    def has_shared(self) -> bool:
        """Return whether an array that must be sent has several readers."""
        return any(self._n_readers[node] > 1 and table.any() for node, _, _, table in self._reads)

    def summed(self, *, shared: bool) -> Tables:
        """Return costs by variable, and by pair of variables."""
        unary = dict(self._own)
        pairwise: dict[tuple[Name, Name], Any] = {}
        for node, maker, reader, seconds in self._reads:
            part = seconds / self._n_readers[node] if shared else seconds
            if maker is None:
                unary[reader] = unary[reader] + part
            else:
                add(pairwise, (maker, reader), part)
        # of states that cost the same the first, which the first planner would take
        return (
            {v: _as_integers(cost) + np.arange(len(cost)) for v, cost in unary.items()},
            {pair: _as_integers(table) for pair, table in pairwise.items()},
        )


def _as_integers(seconds: Any) -> Any:
    return np.minimum(np.rint(np.asarray(seconds) * UNIT), 1e16).astype(np.int64)


def choose(
    variables: Sequence[Variable],
    made: Mapping[int, Variable],
    outside: Mapping[int, Sharding | None],
    costs: CostModel,
) -> list[tuple[list[int], str]]:
    """Return one or two candidate plans: the number of the state of each variable, and how it was found (``exact`` or
    ``fallback``).
    """
    tables = _Tables(variables, made, outside, costs)
    found: list[tuple[list[int], str]] = []
    for shared in (False, True) if tables.has_shared else (False,):
        _, chosen, how = solved(tables.summed(shared=shared), _starts, MAX_ENTRIES)
        numbers = [chosen[tables.names[id(v)]] for v in variables]
        if all(numbers != other for other, _ in found):
            found.append((numbers, how))
    return found


def _starts(tables: Tables) -> list[Mapping[Name, int]]:
    """Return the states of the baseline, and those that cost least if all neighbours suit them."""
    return [dict.fromkeys(tables[0], 0), hopeful(tables)]
