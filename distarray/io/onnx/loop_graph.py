"""The loops of a model as an EinGraph: what the partition planner cuts.

Every node becomes an operation with a label for each of its loops, as the rule of its class says them; nodes that
cannot be annotated read their inputs whole and leave their outputs everywhere. Reshapes vanish: axes that reshapes
split or join are written as *factors* wherever they occur, row-major, and a label stands for one factor. Axes of size 1
have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TypeAlias

from distarray.expr.lens import reshape_groups
from distarray.io.onnx.forms import Size
from distarray.io.onnx.graph import AnnotatedGraph, AnnotatedNode, GraphInference, is_annotatable
from distarray.io.onnx.inference import NodeInference
from distarray.io.onnx.operator_classes import OPERATORS
from distarray.planner.eindecomp import EinGraph, EinOp, Input
from distarray.union_find import UnionFind

#: Elements up to which what follows from initializers alone is computed everywhere: shapes, axes, scalars.
SMALL = 1024

#: An axis of a tensor, by its name and number, or a loop of a node.
_Place: TypeAlias = tuple[str, int]
_Labels: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class NodeLabels:
    """NodeLabels are the loops of a node: a name for each axis of its inputs and outputs, None for axes of size 1.

    Parameters
    ----------
    operands, results
        By tensor.
    whole
        Loops that must not be cut.
    """

    operands: dict[str, tuple[str | None, ...]]
    results: dict[str, tuple[str | None, ...]]
    whole: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class LoopGraph:
    """A LoopGraph is a model as an EinGraph, with the way back.

    Parameters
    ----------
    graph
        Operations by the tensor that they make; inputs are what is everywhere.
    factors
        Per tensor the factors of each axis, in order; those of an axis of size 1 are none.
    arrays
        Of the tensors that reshapes make, the tensor whose array they are.
    reads
        By operation the tensors of its operands, in order: they may be reshaped arrays.
    operations
        Per node the operation that says how it is cut; None: none does.
    gathered
        Numbers of the nodes that read their inputs whole on every device.
    """

    graph: EinGraph
    factors: Mapping[str, tuple[tuple[int, ...], ...]]
    arrays: Mapping[str, str]
    reads: Mapping[str, tuple[str, ...]]
    operations: tuple[str | None, ...]
    gathered: frozenset[int]


def loop_graph(graph: AnnotatedGraph, done: GraphInference) -> LoopGraph:
    """Return the loops of a model.

    Parameters
    ----------
    graph
        All of its sizes that are known are numbers.
    done
        What follows for it without annotations.
    """
    labels = [
        _labels(node, here, inference)
        for node, here, inference in zip(graph.nodes, done.node_forms, done.nodes, strict=True)
    ]
    shapes = {name: form.shape for name, form in done.forms.items()}
    return _Builder(graph, shapes, labels).build()


# -- the loops of a node ----------------------------------------------------------------------------------------------


def _labels(node: AnnotatedNode, here: Mapping[str, object], inference: NodeInference | None) -> NodeLabels | None:
    """Return the loops of a node; None if its class has none, or the rank of a tensor is not known.

    A rule may go through several loops, as a product to which something is added does: their loops are joined where
    the result of one is an operand of another.
    """
    if inference is None or not inference.meetings or not is_annotatable(node):
        return None
    name_of = {id(form): name for name, form in here.items() if name in node.inputs}
    if len(name_of) < len({*node.inputs} - {""}):
        return None
    same = UnionFind[object]()
    made: dict[int, tuple[object, ...]] = {}
    operands: list[tuple[str, tuple[object, ...], tuple[Size, ...]]] = []
    whole: set[object] = set()
    known: set[object] = set()
    for number, met in enumerate(inference.meetings):
        rule = met.loops.rule
        for term, form in zip(rule.operands, met.forms, strict=True):
            loops = tuple([(number, loop) for loop in term])
            if id(form) in made:
                for mine, before, n in zip(loops, made[id(form)], form.shape or (), strict=True):
                    if n != 1:
                        same.union(mine, before)
            elif id(form) in name_of:
                operands.append((name_of[id(form)], loops, form.shape or ()))
                known |= {loop for loop, n in zip(loops, form.shape or (), strict=True) if n != 1}
            else:
                return None
        whole |= {(number, loop) for loop in rule.whole}
        for term, form in zip(rule.results, met.results, strict=True):
            made[id(form)] = tuple([(number, loop) for loop in term])
    known = {same.find(loop) for loop in known}
    names: dict[object, str] = {}

    def named(loops: Sequence[object], shape: Sequence[Size]) -> tuple[str | None, ...]:
        found: list[str | None] = []
        for loop, n in zip(loops, shape, strict=True):
            found.append(None if n == 1 else names.setdefault(same.find(loop), f"l{len(names)}"))
        return tuple(found)

    last = inference.meetings[-1]
    labels = NodeLabels({}, {})
    for name, axes, shape in operands:
        own = named(axes, shape)
        if labels.operands.setdefault(name, own) != own:  # one spec serves both
            labels.whole |= {label for label in (*own, *labels.operands[name]) if label is not None}
    for name, form in zip(node.outputs, last.results, strict=False):
        if name:
            labels.results[name] = named(made[id(form)], form.shape or ())
    # what only results have is not cut by itself
    labels.whole |= {name for loop, name in names.items() if loop not in known}
    labels.whole |= {names[root] for loop in whole if (root := same.find(loop)) in names}
    return labels


# -- axes as factors --------------------------------------------------------------------------------------------------


def _is_chain(numbers: Sequence[int]) -> bool:
    return all(b % a == 0 for a, b in pairwise(sorted(numbers)))


class _AxisFactors:
    """_AxisFactors say which axes are the same everywhere, and so have the same factors: how a size is a product,
    row-major.
    """

    def __init__(self) -> None:
        self.same = UnionFind[object]()
        #: Products of the leading factors, without 1 and the size.
        self._edges: dict[object, frozenset[int]] = {}

    def of(self, place: _Place, n: int) -> tuple[int, ...]:
        edges = [1, *sorted(self._edges.get(self.same.find(place), ())), n]
        return tuple([b // a for a, b in pairwise(edges)]) if n > 1 else ()

    def refine(self, places: Sequence[tuple[_Place, int]], edges: frozenset[int]) -> bool | None:
        """Split axes that stand beside each other into factors at the products `edges`.

        Return whether that changed something; None if an axis cannot be split so.
        """
        wanted: dict[object, frozenset[int]] = {}
        before = 1
        for place, n in places:
            root = self.same.find(place)
            own = {edge // before for edge in edges if before < edge < before * n}
            wanted[root] = wanted.get(root, self._edges.get(root, frozenset())) | own
            if not _is_chain([*wanted[root], n]):
                return None
            before *= n
        changed = any(self._edges.get(root, frozenset()) != found for root, found in wanted.items())
        self._edges.update(wanted)
        return changed

    def edges(self, places: Sequence[tuple[_Place, int]]) -> frozenset[int]:
        """Return the products of leading factors of axes that stand beside each other."""
        found, before = set(), 1
        for place, n in places:
            for factor in self.of(place, n):
                before *= factor
                found.add(before)
        return frozenset(found)


#: Axes of a tensor before and after a reshape that make up the same elements.
_Group: TypeAlias = tuple[list[tuple[_Place, int]], list[tuple[_Place, int]]]


def _groups(source: str, before: Sequence[int], target: str, after: Sequence[int]) -> Iterator[_Group]:
    """Yield axes of a reshape that correspond, as few at a time as can be."""
    left = [((source, axis), n) for axis, n in enumerate(before) if n != 1]
    right = [((target, axis), n) for axis, n in enumerate(after) if n != 1]
    for mine, others in reshape_groups(tuple([n for _, n in left]), tuple([n for _, n in right])):
        yield [left[i] for i in mine], [right[i] for i in others]


class _Builder:
    """A _Builder makes the EinGraph, node by node."""

    def __init__(
        self,
        graph: AnnotatedGraph,
        shapes: Mapping[str, tuple[Size, ...] | None],
        labels: Sequence[NodeLabels | None],
    ) -> None:
        self.graph = graph
        self.shapes = {name: tuple([int(n) for n in shape if isinstance(n, int)]) for name, shape in shapes.items()
                       if shape is not None and all(isinstance(n, int) and n > 0 for n in shape)}  # fmt: skip
        self.labels = [
            None if found is None or not {*found.operands, *found.results} <= {*self.shapes} else found
            for found in labels
        ]
        self.axes = _AxisFactors()
        self.inputs: dict[str, Input] = {}
        self.ops: dict[str, EinOp] = {}
        self.arrays: dict[str, str] = {}
        self.reads: dict[str, tuple[str, ...]] = {}
        self.gathered: set[int] = set()
        self.constants = set(graph.constants)
        #: Axes that a reshape does not let be cut, by the tensor that it makes: broken groups of axes.
        self.broken: dict[str, list[_Group]] = {}

    def build(self) -> LoopGraph:
        """Return the whole of it."""
        self._unite()
        operations = tuple([self._add(number) for number in range(len(self.graph.nodes))])
        factors = {name: self._factors(name) for name in self.shapes}
        graph = EinGraph(self.inputs, self.ops)
        return LoopGraph(graph, factors, self.arrays, self.reads, operations, frozenset(self.gathered))

    # ------------------------------------------------------------------------------------------------- factors

    def _is_reshape(self, node: AnnotatedNode) -> bool:
        is_one = node.op_type in ("Reshape", "Flatten")
        return is_one and node.inputs[0] in self.shapes and node.outputs[0] in self.shapes

    def _unite(self) -> None:
        """Find the factors of all axes: those that loops share are alike, and reshapes pass them on."""
        same = self.axes.same
        groups: list[tuple[str, _Group]] = []
        for number, node in enumerate(self.graph.nodes):
            found = self.labels[number]
            if self._is_reshape(node):
                source, target = node.inputs[0], node.outputs[0]
                for group in _groups(source, self.shapes[source], target, self.shapes[target]):
                    groups.append((target, group))
                    if len(group[0]) == len(group[1]) == 1:
                        same.union(group[0][0][0], group[1][0][0])
            elif found is not None:
                for name, term in (*found.operands.items(), *found.results.items()):
                    for axis, loop in enumerate(term):
                        if loop is not None:
                            same.union((name, axis), (number, loop))
        is_changing = True
        while is_changing:
            is_changing = False
            for target, group in list(groups):
                edges = self.axes.edges(group[0]) | self.axes.edges(group[1])
                ways = [self.axes.refine(side, edges) if _is_chain([*edges]) else None for side in group]
                is_changing |= any(ways)
                if None in ways:
                    groups.remove((target, group))
                    self.broken.setdefault(target, []).append(group)

    def _factors(self, name: str) -> tuple[tuple[int, ...], ...]:
        return tuple([self.axes.of((name, axis), n) for axis, n in enumerate(self.shapes.get(name, ()))])

    # -------------------------------------------------------------------------------------------------- nodes

    def _array(self, name: str) -> str:
        """Return the array of a tensor; what no operation makes is an input."""
        name = self.arrays.get(name, name)
        if name not in self.ops and name not in self.inputs:
            shape = tuple([f for axis in self._factors(name) for f in axis])
            self.inputs[name] = Input(shape, itemsize=self.graph.itemsizes.get(name) or 8, everywhere=True)
        return name

    def _add(self, number: int) -> str | None:
        """Add one node, and return the operation that says how it is cut."""
        node, found = self.graph.nodes[number], self.labels[number]
        given = [name for name in dict.fromkeys(node.inputs) if name]
        if self.constants.issuperset(given) and all(
            prod(self.shapes.get(name, (0,))) <= SMALL for name in (*given, *node.outputs) if name
        ):
            self.constants.update(node.outputs)
            return None
        if self._is_reshape(node):
            return self._reshape(node)
        if node.op_type in ("Shape", "Size"):
            return None  # no element is looked at
        row = OPERATORS.get(node.op_type)
        is_made = row is not None and row.group.number in ("C-1", "U-2")  # where it is read
        if is_made or found is None or not found.results:
            self._whole(node, number)
            return None
        terms = {name: self._term(name, loops) for name, loops in found.operands.items()}
        whole = {label for name, loops in found.operands.items() for label in self._closed(name, loops, found.whole)}
        for name, loops in found.results.items():
            closed = whole | set(self._closed(name, loops, found.whole))
            self._operation(name, terms, self._term(name, loops), closed)
        return next(iter(found.results))

    def _term(self, name: str, term: Sequence[str | None]) -> tuple[_Labels, ...]:
        """Return the labels of each axis of a tensor: one for each factor."""
        factors = self._factors(name)
        return tuple([tuple([f"{loop}.{i}" for i in range(len(of))]) for loop, of in zip(term, factors, strict=True)])

    def _closed(self, name: str, term: Sequence[str | None], whole: set[str]) -> Iterator[str]:
        for loop, labels in zip(term, self._term(name, term), strict=True):
            if loop in whole:
                yield from labels

    def _operation(
        self, name: str, terms: Mapping[str, tuple[_Labels, ...]], result: tuple[_Labels, ...], whole: set[str]
    ) -> None:
        extents: dict[str, int] = {}
        for tensor, term in (*terms.items(), (name, result)):
            for labels, factors in zip(term, self._factors(tensor), strict=True):
                extents.update(zip(labels, factors, strict=True))
        self.reads[name] = tuple(terms)
        flat = tuple([tuple([label for labels in term for label in labels]) for term in terms.values()])
        self.ops[name] = EinOp(
            flat,
            tuple([label for labels in result for label in labels]),
            tuple([self._array(tensor) for tensor in terms]),
            extents,
            whole=frozenset(whole & extents.keys()),
            itemsize=self.graph.itemsizes.get(name) or 8,
        )

    def _reshape(self, node: AnnotatedNode) -> str | None:
        """Let a reshape be the array that it reads; axes that have no common factors must be whole."""
        source, target = node.inputs[0], node.outputs[0]
        if target not in self.broken:
            self.arrays[target] = self._array(source)
            return None
        term: list[str | None] = [None if n == 1 else f"s{axis}" for axis, n in enumerate(self.shapes[source])]
        result: list[str | None] = [None if n == 1 else f"t{axis}" for axis, n in enumerate(self.shapes[target])]
        whole_groups = list(self.broken[target])
        for mine, others in _groups(source, self.shapes[source], target, self.shapes[target]):
            if len(mine) == len(others) == 1:
                result[int(others[0][0][1])] = f"s{mine[0][0][1]}"
            else:  # not worth more: the node is rare
                whole_groups.append((mine, others))
        closed = {f"{side}{axis}" for group in whole_groups for side, places in zip("st", group, strict=True)
                  for (_, axis), _ in places}  # fmt: skip
        terms = {source: self._term(source, term)}
        whole = {*self._closed(source, term, closed), *self._closed(target, result, closed)}
        self._operation(target, terms, self._term(target, result), whole)
        return target

    def _whole(self, node: AnnotatedNode, number: int) -> None:
        """Add a node that reads its inputs whole, and leaves its outputs on every device."""
        self.gathered.add(number)
        known = [name for name in dict.fromkeys(node.inputs) if name in self.shapes]
        terms = {
            name: self._term(name, [f"i{k}x{axis}" for axis in range(len(self.shapes[name]))])
            for k, name in enumerate(known)
        }
        if terms:
            labels = {label for term in terms.values() for axis in term for label in axis}
            self._operation(f"#{number}", terms, (), labels)
