"""What a model costs as it is annotated: bytes between devices, seconds, and bytes that a device holds.

Nothing is run: everything follows from the forms of `graph.infer_graph` and the rates of the planner. Model inputs and
initializers are on every device (G-2), so what a node reads of them moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from distarray.io.onnx.crossings import Crossing, crossings_of, held_bytes, is_known, shard_sizes
from distarray.io.onnx.forms import TensorForm
from distarray.io.onnx.graph import AnnotatedGraph, GraphInference
from distarray.io.onnx.parallel_loops import Meeting
from distarray.planner.eindecomp import EinOp
from distarray.planner.rates import Rates


@dataclass(frozen=True, slots=True)
class NodeCost:
    """A NodeCost is what a node moves and takes.

    Parameters
    ----------
    node, op_type
        Of the graph.
    crossings
        Of its inputs and outputs, as far as their forms change.
    seconds
        Of its kernels on the busiest device, and of all that moves.
    """

    node: str
    op_type: str
    crossings: tuple[Crossing, ...]
    seconds: float

    @property
    def nbytes(self) -> int:
        """Return the bytes that move between devices."""
        return sum([crossing.total for crossing in self.crossings])


@dataclass(frozen=True, slots=True)
class ModelCost:
    """A ModelCost is what a model moves, takes and holds.

    Parameters
    ----------
    nodes
        In their order.
    peak_bytes
        Of the device that holds most: parts of inputs and initializers that its nodes read, and what is alive between
        nodes.
    """

    nodes: tuple[NodeCost, ...]
    peak_bytes: int

    @property
    def nbytes(self) -> int:
        """Return the bytes that move between devices."""
        return sum([node.nbytes for node in self.nodes])

    @property
    def seconds(self) -> float:
        """Return the predicted seconds, one node after the other."""
        return sum([node.seconds for node in self.nodes])


def _kernel_seconds(met: Meeting, num_devices: int, itemsize: int, rates: Rates) -> Any:
    """Return the seconds that each device computes, replicas too."""
    rule = met.loops.rule
    sizes = {**met.sizes, **met.loops.sizes}
    names = dict.fromkeys([loop for term in (*rule.operands, *rule.results) for loop in term if loop != "1"])
    whole = prod([int(sizes.get(loop) or 1) for loop in names if loop not in met.cuts])
    points = np.full(1, whole, float)
    for loop, cut in met.cuts.items():
        points = np.kron(points, shard_sizes(cut, int(sizes[loop] or 0)))
    work = np.zeros(num_devices)
    for n, devices in zip(points, met.held, strict=True):
        work[list(devices)] += n
    inputs = tuple(map(str, range(len(rule.operands))))
    op = EinOp(rule.operands, rule.results[0], inputs, dict.fromkeys(names, 1), itemsize=itemsize)
    return rates.flop_seconds(op.kernel_kind, work * op.point_flops, itemsize)


def model_cost(graph: AnnotatedGraph, done: GraphInference, num_devices: int, rates: Rates) -> ModelCost:
    """Return what a model costs whose forms were inferred.

    Parameters
    ----------
    graph
        All of its sizes are numbers; tensors of unknown shapes cost nothing.
    done
        Its forms, without errors.
    num_devices, rates
        Of the team.
    """
    nodes = []
    moved = crossings_of(graph, done, num_devices)
    for node, inference, crossings in zip(graph.nodes, done.nodes, moved, strict=True):
        assert inference is not None
        seconds = rates.step + sum([crossing.seconds(rates) for crossing in crossings])
        itemsize = max([graph.itemsizes.get(name) or 8 for name in node.outputs if name], default=8)
        for met in inference.meetings:
            if all(map(is_known, met.forms)):
                seconds += float(np.max(_kernel_seconds(met, num_devices, itemsize, rates)))
        nodes.append(NodeCost(node.name, node.op_type, crossings, seconds))
    return ModelCost(tuple(nodes), _peak_bytes(graph, done, num_devices))


def _peak_bytes(graph: AnnotatedGraph, done: GraphInference, num_devices: int) -> int:
    """Return the most bytes that a device holds, counted node by node."""
    last = {name: i for i, node in enumerate(graph.nodes) for name in (*node.outputs, *node.inputs)}

    def nbytes(name: str, form: TensorForm) -> Any:
        return held_bytes(form, num_devices, graph.itemsizes.get(name) or 8)

    read: dict[str, list[TensorForm]] = {}
    for node, here in zip(graph.nodes, done.node_forms, strict=True):
        for name in {*node.inputs} & graph.inputs:
            forms = read.setdefault(name, [])
            if is_known(here[name]) and not any(here[name].is_same(form) for form in forms):
                forms.append(here[name])
    first = np.zeros(num_devices)
    for name, forms in read.items():  # never more than the whole
        parts = sum([nbytes(name, form) for form in forms], np.zeros(num_devices))
        n_elements = prod([int(n or 0) for form in forms[:1] for n in form.shape or ()])
        first += np.minimum(parts, (graph.itemsizes.get(name) or 8) * n_elements)
    alive: dict[str, Any] = {}
    peak = 0
    for number, (node, here) in enumerate(zip(graph.nodes, done.node_forms, strict=True)):
        total = first + sum(alive.values(), np.zeros(num_devices))
        for name in {*node.inputs} - graph.inputs - {""}:
            if name in alive and not here[name].is_same(done.forms[name]):
                total = total + nbytes(name, here[name])
        for name in filter(None, node.outputs):
            if is_known(here[name]):
                alive[name] = nbytes(name, here[name])
                total = total + alive[name]
        peak = max(peak, int(total.max()))
        for name in [name for name in alive if last[name] <= number and name in node.inputs]:
            del alive[name]
    return peak
