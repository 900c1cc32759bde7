"""What a model costs as it is annotated: bytes between devices, seconds, and bytes that a device holds.

Nothing is run: everything follows from the forms of `graph.infer_graph` and the rates of the planner. Model inputs and
initializers are on every device (G-2), so what a node reads of them moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod
from typing import Any

import numpy as np

from distarray.io.onnx.forms import AxisCut, TensorForm, n_shards
from distarray.io.onnx.graph import AnnotatedGraph, GraphInference
from distarray.io.onnx.inference import NodeInference
from distarray.io.onnx.model_plan import collective_of, sum_of
from distarray.io.onnx.parallel_loops import Meeting
from distarray.planner.eindecomp import EinOp
from distarray.planner.rates import Rates
from distarray.sharding.cuts import boundaries


@dataclass(frozen=True, slots=True)
class Crossing:
    """A Crossing is what one tensor moves between devices on its way from one form to another.

    Parameters
    ----------
    tensor
        Its name.
    collective
        What it amounts to: ``"slice"`` if nothing moves.
    nbytes, messages
        That come to each device.
    is_after
        Whether it is a part of the node that makes the tensor; else of one that reads it.
    """

    tensor: str
    collective: str
    nbytes: Any
    messages: Any
    is_after: bool

    @property
    def total(self) -> int:
        """Return the bytes that come to all devices."""
        return round(float(self.nbytes.sum()))

    def seconds(self, rates: Rates) -> float:
        """Return the seconds of the device to which most comes."""
        each = self.nbytes / rates.bandwidth if rates.bandwidth else 0.0 * self.nbytes
        return float((each + rates.latency * self.messages).max())


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


# -- from form to form ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _shard_of(cut: AxisCut, n: int) -> Any:
    """Return the shard of each index of an axis."""
    at = np.zeros(1, np.intp)
    for size, k in cut or ((n, 1),):
        size = size if isinstance(size, int) else n
        part = np.repeat(np.arange(k), np.diff(boundaries(size, k)))
        at = np.add.outer(at * k, part).ravel()
    return at


@lru_cache(maxsize=1024)
def _overlap(a: AxisCut, b: AxisCut, n: int) -> Any:
    """Return the elements that each shard of one cut of an axis has in common with each of another."""
    rows, columns = n_shards(a), n_shards(b)
    if max(len(a), len(b)) <= 1:  # plain cuts: no element is looked at
        edges, others = np.array(boundaries(n, rows)), np.array(boundaries(n, columns))
        ends = np.minimum.outer(edges[1:], others[1:])
        return np.maximum(ends - np.maximum.outer(edges[:-1], others[:-1]), 0)
    pairs = _shard_of(a, n) * columns + _shard_of(b, n)
    return np.bincount(pairs, minlength=rows * columns).reshape(rows, columns)


def _overlaps(a: TensorForm, b: TensorForm) -> Any:
    """Return the elements that shards of two forms of a tensor have in common."""
    axes = [_overlap(x, y, int(n or 0)) for x, y, n in zip(a.cuts, b.cuts, a.shape or (), strict=True)]
    return reduce(np.kron, axes, np.ones((1, 1), np.int64))


def _holders(form: TensorForm, num_devices: int) -> Any:
    """Return whether each device (row) has each shard (column)."""
    found = np.zeros((num_devices, len(form.owners)), bool)
    for shard, owners in enumerate(form.owners):
        found[list(owners), shard] = True
    return found


def _held(form: TensorForm, num_devices: int, itemsize: int) -> Any:
    """Return the bytes of a tensor that each device has."""
    return itemsize * (_holders(form, num_devices) @ _overlaps(form, form).sum(axis=1))


def redistributed(
    tensor: str, source: TensorForm, target: TensorForm, num_devices: int, itemsize: int, *, is_after: bool = False
) -> Crossing:
    """Return what a tensor moves from one form to another: each device gets what it needs and lacks."""
    common, have, need = _overlaps(source, target), _holders(source, num_devices), _holders(target, num_devices)
    nbytes = itemsize * (need @ common.sum(axis=0) - ((have @ common) * need).sum(axis=1))
    messages = ((need.astype(int) @ (common.T > 0)) * ~have > 0).sum(axis=1) * (nbytes > 0)
    collective = collective_of(source, target) if nbytes.any() else "slice"
    return Crossing(tensor, collective, nbytes, messages, is_after)


def reduced(tensor: str, partial: TensorForm, target: TensorForm, n: int, num_devices: int, itemsize: int) -> Crossing:
    """Return what partial results of a tensor move until they are combined in a form.

    Parameters
    ----------
    partial
        Who has parts of each shard.
    target
        Who gets which elements. Each owner combines its share of them, and gets the others' shares.
    n
        Partial results of each element, as far as there are devices for them.
    """
    common = _overlaps(partial, target)
    have, need = _holders(partial, num_devices), _holders(target, num_devices)
    owners = need.sum(axis=0)
    parts = np.minimum(n, have.sum(axis=0))  # those on one device are combined there
    transfers = np.add.outer(parts - 1, owners - 1)
    elements = (need / owners) @ (common * transfers).sum(axis=0)
    elements += (~have * ((need / owners) @ common.T)).sum(axis=1)  # who has no part gets one more
    messages = need.astype(int) @ ((common > 0) * transfers).sum(axis=0)
    return Crossing(tensor, sum_of(partial, target), itemsize * elements, messages, True)


# -- nodes ------------------------------------------------------------------------------------------------------------


def n_partials(inference: NodeInference) -> int:
    """Return how many partial results each element of a node's outputs has: one if no loop that is reduced is cut."""
    found = 1
    for met in inference.meetings:
        kept = {loop for term in met.loops.rule.results for loop in term}
        found *= prod([n_shards(cut) for loop, cut in met.cuts.items() if loop not in kept])
    return found


def _kernel_seconds(met: Meeting, num_devices: int, itemsize: int, rates: Rates) -> Any:
    """Return the seconds that each device computes, replicas too."""
    rule = met.loops.rule
    sizes = {**met.sizes, **met.loops.sizes}
    names = dict.fromkeys([loop for term in (*rule.operands, *rule.results) for loop in term if loop != "1"])
    whole = prod([int(sizes.get(loop) or 1) for loop in names if loop not in met.cuts])
    points = np.full(1, whole, float)
    for loop, cut in met.cuts.items():
        each = _overlap(cut, (), int(sizes[loop] or 0)).sum(axis=1)
        points = np.multiply.outer(points, each).ravel()
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
    meter = _HeldBytes(graph, done, num_devices)
    for number, (node, here, inference) in enumerate(zip(graph.nodes, done.node_forms, done.nodes, strict=True)):
        crossings = []
        for name in dict.fromkeys(filter(None, node.inputs)):
            source, target = done.forms[name], here[name]
            if _is_known(source) and _is_known(target) and not source.is_same(target):
                crossings.append(redistributed(name, source, target, num_devices, _itemsize(graph, name)))
        assert inference is not None
        seconds = 0.0
        itemsize = max([_itemsize(graph, name) for name in node.outputs if name], default=8)
        for met in inference.meetings:
            if all(map(_is_known, met.forms)):
                seconds += float(np.max(_kernel_seconds(met, num_devices, itemsize, rates)))
        crossings += _outputs(graph, here, inference, num_devices)
        seconds += rates.step + sum([crossing.seconds(rates) for crossing in crossings])
        nodes.append(NodeCost(node.name, node.op_type, tuple(crossings), seconds))
        meter.run(number)
    return ModelCost(tuple(nodes), meter.peak)


def _outputs(
    graph: AnnotatedGraph,
    here: Mapping[str, TensorForm],
    inference: NodeInference,
    num_devices: int,
) -> list[Crossing]:
    """Return how the outputs of a node come into the forms that it gives them."""
    found = []
    n = n_partials(inference)
    for name, natural in inference.natural.items():
        if not _is_known(natural) or not _is_known(here[name]):
            continue
        itemsize = _itemsize(graph, name)
        if n > 1:
            found.append(reduced(name, natural, here[name], n, num_devices, itemsize))
        elif not natural.is_same(here[name]):
            found.append(redistributed(name, natural, here[name], num_devices, itemsize, is_after=True))
    return found


def _is_known(form: TensorForm) -> bool:
    return form.shape is not None and all(isinstance(n, int) for n in form.shape)


def _itemsize(graph: AnnotatedGraph, name: str) -> int:
    return graph.itemsizes.get(name) or 8


class _HeldBytes:
    """Counts what devices hold, node by node."""

    def __init__(self, graph: AnnotatedGraph, done: GraphInference, num_devices: int) -> None:
        self._graph, self._done, self._num_devices = graph, done, num_devices
        self._last = {name: i for i, node in enumerate(graph.nodes) for name in (*node.outputs, *node.inputs)}
        self._alive: dict[str, Any] = {}
        self._first = np.zeros(num_devices)
        self.peak = 0
        read: dict[str, list[TensorForm]] = {}
        for node, here in zip(graph.nodes, done.node_forms, strict=True):
            for name in {*node.inputs} & graph.inputs:
                forms = read.setdefault(name, [])
                if _is_known(here[name]) and not any(here[name].is_same(form) for form in forms):
                    forms.append(here[name])
        for name, forms in read.items():  # never more than the whole
            parts = sum([self._bytes(name, form) for form in forms], np.zeros(num_devices))
            n_elements = prod([int(n or 0) for form in forms[:1] for n in form.shape or ()])
            self._first += np.minimum(parts, _itemsize(graph, name) * n_elements)

    def _bytes(self, name: str, form: TensorForm) -> Any:
        return _held(form, self._num_devices, _itemsize(self._graph, name))

    def run(self, number: int) -> None:
        """Count one node."""
        node, here = self._graph.nodes[number], self._done.node_forms[number]
        total = self._first + sum(self._alive.values(), np.zeros(self._num_devices))
        for name in {*node.inputs} - self._graph.inputs - {""}:
            if name in self._alive and not here[name].is_same(self._done.forms[name]):
                total = total + self._bytes(name, here[name])
        for name in filter(None, node.outputs):
            if _is_known(here[name]):
                self._alive[name] = self._bytes(name, here[name])
                total = total + self._alive[name]
        self.peak = max(self.peak, int(total.max()))
        for name in [name for name in self._alive if self._last[name] <= number and name in node.inputs]:
            del self._alive[name]
