"""The stages of a graph as an EinGraph: labelled loops, for the planner of the paper and for its lower bounds.

One operation per stage, its labels the loops. What a lens shows of an array in other places than its own, and what
tiles read in ranges, is an input of its own, free to lie in any way: its price does not depend on cuts that an EinGraph
knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from distarray.planner.eindecomp.bounds import op_bound
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Input
from distarray.planner.graph import Graph
from distarray.planner.loops import Reading
from distarray.planner.partition.box_traffic import View
from distarray.planner.partition.facts import StageFacts
from distarray.sharding.sharding import Sharding


def _label(loop: int) -> str:
    return f"l{loop}"


class _Translation:
    def __init__(self, outside: Mapping[int, Sharding | None]) -> None:
        self._outside = outside
        self.inputs: dict[str, Input] = {}
        self.ops: dict[str, EinOp] = {}
        #: By node the operation that makes it; and by written node the base, which lies as it does.
        self._made: dict[int, str] = {}
        self._base: dict[int, int] = {}

    def add(self, facts: StageFacts, sharding: Sharding, base: int) -> None:
        """Add the operation of a stage.

        Parameters
        ----------
        sharding
            Type of its loops, if that is not free.
        base
            Node that it writes; -1.
        """
        name = f"s{facts.number}"
        op = self._op(facts, name)
        if not facts.free or facts.pinned >= 0 or facts.is_written:
            parts = {_label(i): k for i, k in enumerate(sharding.parts) if k > 1}
            op = replace(op, fixed={x: k for x, k in parts.items() if x in op.labels})
        self.ops[name] = op
        stage = facts.stage
        for _, i in stage.stores:
            self._made[i] = name
        if facts.is_written:
            self._base[stage.nodes[0] if stage.write is None else stage.write[1]] = base
        elif not stage.family.is_fused:
            self._made[stage.nodes[0]] = name
        if stage.write is None and not stage.stores and len(stage.combines) == 1:
            self._made[stage.combines[0].node] = name
            return
        for k, c in enumerate(stage.combines):
            kept = tuple([x for i, x in enumerate(op.result) if i not in c.axes])
            part = f"{name}r{k}"
            self.ops[part] = EinOp((op.result,), kept, (name,), op.extents, "id", c.monoid, itemsize=c.dtype.itemsize)
            self._made[c.node] = part

    def _op(self, facts: StageFacts, name: str) -> EinOp:
        stage, loops = facts.stage, facts.loops
        extents = {_label(i): n for i, n in enumerate(loops.extents)}
        result = tuple(extents) if stage.family.is_fused else tuple([_label(i) for i in loops.results[0]])
        if stage.family.is_fused and stage.write is None and not stage.stores and len(stage.combines) == 1:
            result = tuple([_label(i) for i in range(len(loops.extents)) if i not in stage.combines[0].axes])
        terms, inputs = [], []
        for p, (r, view) in enumerate(zip(facts.readings, facts.views, strict=True)):
            term = self._term(p, r, extents)
            inputs.append(self._input(f"{name}x{p}", r, view, [extents[x] for x in term]))
            terms.append(term)
        op = EinOp(tuple(terms), result, tuple(inputs), extents, itemsize=facts.itemsize)
        # Without the loops that only results behind the first have.
        whole = frozenset([_label(i) for i in loops.whole]).union(x for x in extents if x.startswith("w"))
        return replace(op, whole=whole.intersection(op.labels))

    def _term(self, p: int, r: Reading, extents: dict[str, int]) -> tuple[str, ...]:
        """Return the labels of the axes of the source; an axis that is read whole, or twice along one loop, has its
        own.
        """
        found: list[str] = []
        for b, (axis, _, _) in enumerate(r.lens.terms):
            loop = None if axis is None else r.loops[axis]
            x = f"w{p}_{b}" if loop is None or _label(loop) in found else _label(loop)
            if x.startswith("w"):
                extents[x] = r.shape[b]
            found.append(x)
        return tuple(found)

    def _shape_of(self, name: str) -> tuple[int, ...]:
        """Return the extents of what an operation makes: of one whose loops count tiles, not those of its elements."""
        op = self.ops[name]
        return tuple([op.extents[x] for x in op.result])

    def _input(self, name: str, r: Reading, view: View | None, shape: Sequence[int]) -> str:
        itemsize = r.dtype.itemsize
        if view is not None and tuple(shape) == r.shape and all(
            axis is None or (start, step) == (0, 1) for axis, start, step in r.lens.terms
        ):  # fmt: skip
            node = r.node
            while node in self._base:
                node = self._base[node]
            if (made := self._made.get(node)) is not None and self._shape_of(made) == tuple(shape):
                return made
            lying = self._outside.get(node)
            if lying is not None:
                name = f"n{node}"
                self.inputs[name] = Input(tuple(shape), lying.parts if lying.is_regular else None, None, itemsize)
                return name
        self.inputs[name] = Input(tuple(shape), None, None, itemsize)
        return name


def ein_graph(
    graph: Graph, facts: Sequence[StageFacts], shardings: Sequence[Sharding], outside: Mapping[int, Sharding | None]
) -> EinGraph | None:
    """Return the stages as an EinGraph: stage ``n`` is the operation ``sn``, its loop ``i`` the label ``li``.

    None if there is no element to be planned for.

    Parameters
    ----------
    shardings
        By stage the types of the loops of any plan: those of stages that are not free are prescribed.
    outside
        Types of what is stored before.
    """
    builder = _Translation(outside)
    for f in facts:
        if not f.stage.family.is_item:
            if 0 in f.loops.extents or any(0 in r.shape for r in f.readings):
                return None
            builder.add(f, shardings[f.number], graph.base(f.stage.written))
    return EinGraph(builder.inputs, builder.ops)


def stage_bound(facts: StageFacts, p: int) -> float:
    """Return the bytes that a product must move at least on `p` members, whatever its cut and wherever its operands lie
    best.
    """
    if not facts.stage.family.is_contraction or 0 in facts.loops.extents:
        return 0.0
    op = _Translation({})._op(facts, "s")
    return op_bound(op, p) * min([op.itemsize, *[r.dtype.itemsize for r in facts.readings]])
