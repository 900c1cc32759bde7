"""What crosses between devices when an annotated model runs: the collective of each tensor, and the bytes that come.

A tensor crosses before a node that wants it in another form than it has, or after its own (G-3, G-4), and where each
device has a part of a sum (R-1, M-1). All follows from two forms: a device gets what it needs and lacks. Plans of runs
and predictions of costs count here.

A `ModelPlan` is all of it, with what every device receives and holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import lcm, prod
from typing import Any

import numpy as np

from distarray.io.onnx.forms import AxisCut, TensorForm, is_identical, n_shards
from distarray.io.onnx.graph import AnnotatedGraph, GraphInference
from distarray.io.onnx.inference import NodeInference
from distarray.planner.rates import Rates
from distarray.sharding.cuts import boundaries
from distarray.tables import format_nbytes, format_table

#: Pairs of shards of source and target for which bytes are counted, and indices of a fused axis.
MAX_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True)
class Crossing:
    """A Crossing is what one tensor moves between devices on its way from one form to another.

    Parameters
    ----------
    tensor
        Its name.
    collective
        ``slice`` (every device has its part already), ``broadcast``, ``permute``, ``scatter``, ``gather``,
        ``all-gather``, ``all-to-all``; of sums ``reduce``, ``all-reduce``, ``reduce-scatter``.
    is_after
        Whether it is a part of the node that makes the tensor; else of one that reads it.
    messages
        That come to each device.
    nbytes, held
        Bytes that come to each device, and that it holds of what is there before and after; None where sizes are not
        known.
    node
        At which node, in a plan.
    """

    tensor: str
    collective: str
    is_after: bool
    messages: Any
    nbytes: Any = None
    held: Any = None
    node: str = ""

    @property
    def when(self) -> str:
        """Return whether it is ``"before"`` the node, or ``"after"``."""
        return "after" if self.is_after else "before"

    @property
    def received(self) -> tuple[int, ...] | None:
        """Return the bytes that each device gets from others; None where sizes are not known."""
        return None if self.nbytes is None else tuple(self.nbytes.tolist())

    @property
    def peak(self) -> int | None:
        """Return the most bytes that a device holds; None where sizes are not known."""
        return None if self.held is None else int(self.held.max())

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in ("tensor", "node", "when", "collective", "received", "peak")}

    @property
    def total(self) -> int:
        """Return the bytes that come to all devices; 0 if they are not known."""
        return 0 if self.nbytes is None else int(self.nbytes.sum())

    def seconds(self, rates: Rates) -> float:
        """Return the seconds of the device to which most comes."""
        return float(np.max(rates.transfer_seconds(self.messages, 0 if self.nbytes is None else self.nbytes)))


def crossings_of(graph: AnnotatedGraph, done: GraphInference, num_devices: int) -> Iterator[tuple[Crossing, ...]]:
    """Yield per node what crosses for its inputs and outputs, of a graph whose forms are known."""
    for node, here, inferred in zip(graph.nodes, done.node_forms, done.nodes, strict=True):
        found = []
        for name in dict.fromkeys(filter(None, node.inputs)):
            source, target = done.forms[name], here[name]
            if not source.is_same(target):
                found.append(redistributed(name, source, target, num_devices, graph.itemsizes.get(name, 0)))
        assert inferred is not None, "there is no error"
        n = n_partials(inferred)
        for name, natural in inferred.natural.items():
            itemsize = graph.itemsizes.get(name, 0)
            if n > 1 and any(len(owners) > 1 for owners in natural.owners):
                found.append(reduced(name, natural, here[name], n, num_devices, itemsize))
            elif not natural.is_same(here[name]):
                found.append(redistributed(name, natural, here[name], num_devices, itemsize, is_after=True))
        yield tuple(found)


def n_partials(inference: NodeInference) -> int:
    """Return how many partial results each element of a node's outputs has: one if no loop that is reduced is cut."""
    found = 1
    for met in inference.meetings:
        kept = {loop for term in met.loops.rule.results for loop in term}
        found *= prod([n_shards(cut) for loop, cut in met.cuts.items() if loop not in kept])
    return found


def redistributed(
    tensor: str, source: TensorForm, target: TensorForm, num_devices: int, itemsize: int, *, is_after: bool = False
) -> Crossing:
    """Return what a tensor moves from one form to another: each device gets what it needs and lacks.

    Parameters
    ----------
    itemsize
        Of an element; 0 if nobody knows.
    """
    common = _overlaps(source, target)
    have, need = _holders(source, num_devices), _holders(target, num_devices)
    if common is None:
        is_local = len(source.owners) == 1 and target.devices <= source.devices
        collective = "slice" if is_local else _collective(source, target)
        return Crossing(tensor, collective, is_after, np.zeros(num_devices))
    elements = need @ common.sum(axis=0) - ((have @ common) * need).sum(axis=1)
    messages = ((need.astype(int) @ (common.T > 0)) * ~have > 0).sum(axis=1) * (elements > 0)
    collective = _collective(source, target) if elements.any() else "slice"
    held = need @ common.sum(axis=0) + have @ common.sum(axis=1)
    return _counted(Crossing(tensor, collective, is_after, messages, elements, held), source, target, itemsize)


def reduced(tensor: str, partial: TensorForm, target: TensorForm, n: int, num_devices: int, itemsize: int) -> Crossing:
    """Return what partial results of a tensor move until they are combined in a form.

    Parameters
    ----------
    partial
        Who has parts of each shard.
    target
        Who gets which elements. Each owner combines its share of them (`TensorForm.shares`), and gets the others'.
    n
        Partial results of each element, as far as there are devices for them.
    itemsize
        As of `redistributed`.
    """
    collective = "reduce" if all(len(owners) == 1 for owners in target.owners) else "all-reduce"
    if len(target.owners) > len(partial.owners):
        collective = "reduce-scatter"
    combining = target.shares()
    common, shares = _overlaps(partial, target), _overlaps(partial, combining)
    if common is None or shares is None:
        return Crossing(tensor, collective, True, np.zeros(num_devices))
    have, need = _holders(partial, num_devices), _holders(target, num_devices)
    parts = np.minimum(n, have.sum(axis=0))  # those on one device are combined there
    # By shard of the partial results and device the elements that are combined there; who has no part gets one more.
    combined = np.zeros((len(partial.owners), num_devices), np.int64)
    for at, (device,) in zip(shares.T, combining.owners, strict=True):
        combined[:, device] += at
    elements = ((parts[:, None] - have.T) * combined).sum(axis=0) + need @ common.sum(axis=0) - combined.sum(axis=0)
    messages = need.astype(int) @ ((common > 0) * np.add.outer(parts - 1, need.sum(axis=0) - 1)).sum(axis=0)
    held = need @ common.sum(axis=0) + have @ common.sum(axis=1)
    found = Crossing(tensor, collective, True, messages, elements, held)
    return _counted(found, partial, target, itemsize)


def held_bytes(form: TensorForm, num_devices: int, itemsize: int) -> Any:
    """Return the bytes of a tensor that each device has; all sizes are known."""
    sizes = [shard_sizes(cut, int(n or 0)) for n, cut in zip(form.shape or (), form.cuts, strict=True)]
    return itemsize * (_holders(form, num_devices) @ reduce(np.kron, sizes, np.ones(1, np.int64)))


def is_known(form: TensorForm) -> bool:
    """Return whether all sizes of a form are numbers."""
    return form.shape is not None and all(isinstance(n, int) for n in form.shape)


def _collective(source: TensorForm, target: TensorForm) -> str:
    """Return the collective that takes a tensor from one form to another, where some device lacks something."""
    if len(source.cuts) == len(target.cuts) and all(map(is_identical, source.cuts, target.cuts)):
        is_more = all(a <= b for a, b in zip(source.owners, target.owners, strict=True))
        return "broadcast" if is_more else "permute"
    if len(target.owners) == 1:
        return "all-gather" if len(target.devices) > 1 else "gather"
    return "scatter" if len(source.owners) == 1 else "all-to-all"


def _counted(crossing: Crossing, source: TensorForm, target: TensorForm, itemsize: int) -> Crossing:
    """Return a crossing of elements as one of bytes, which are not known where sizes stand in for others."""
    if not itemsize or not is_known(source) or not is_known(target):
        return replace(crossing, nbytes=None, held=None)
    return replace(crossing, nbytes=crossing.nbytes * itemsize, held=crossing.held * itemsize)


# -- elements of shards -----------------------------------------------------------------------------------------------


def shard_sizes(cut: AxisCut, n: int) -> Any:
    """Return the elements of each shard of an axis of `n`."""
    entries = [(size if isinstance(size, int) else n, k) for size, k in cut or ((n, 1),)]
    return reduce(np.kron, [np.diff(boundaries(size, k)) for size, k in entries])


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
def _shared_elements(a: AxisCut, b: AxisCut, n: int) -> Any:
    """Return the elements that each shard of one cut of an axis has in common with each of another."""
    rows, columns = n_shards(a), n_shards(b)
    if max(len(a), len(b)) <= 1:  # plain cuts: no element is looked at
        edges, others = np.array(boundaries(n, rows)), np.array(boundaries(n, columns))
        ends = np.minimum.outer(edges[1:], others[1:])
        return np.maximum(ends - np.maximum.outer(edges[:-1], others[:-1]), 0)
    pairs = _shard_of(a, n) * columns + _shard_of(b, n)
    return np.bincount(pairs, minlength=rows * columns).reshape(rows, columns)


def _overlaps(a: TensorForm, b: TensorForm) -> Any:
    """Return the elements that shards of two forms of a tensor have in common; None where they are too many to count,
    or the rank is not known.

    For sizes that are not known others stand in that shards divide: which collective it is does not depend on them.
    """
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return None
    sizes = []
    for n, m, x, y in zip(a.shape, b.shape, a.cuts, b.cuts, strict=True):
        known = n if isinstance(n, int) else m
        sizes.append(known if isinstance(known, int) else 2 * lcm(n_shards(x), n_shards(y)))
    fused = [n for n, x, y in zip(sizes, a.cuts, b.cuts, strict=True) if max(len(x), len(y)) > 1]
    if max([len(a.owners) * len(b.owners), *fused]) > MAX_PAIRS:
        return None
    axes = [_shared_elements(x, y, n) for x, y, n in zip(a.cuts, b.cuts, sizes, strict=True)]
    return reduce(np.kron, axes, np.ones((1, 1), np.int64))


def _holders(form: TensorForm, num_devices: int) -> Any:
    """Return whether each device (row) has each shard (column)."""
    found = np.zeros((num_devices, len(form.owners)), bool)
    for shard, owners in enumerate(form.owners):
        found[list(owners), shard] = True
    return found


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A ModelPlan is what moves when an annotated model runs, in the order of its nodes.

    Parameters
    ----------
    edges
        All of it; slices of what a device has are among them.
    """

    edges: tuple[Crossing, ...]

    @classmethod
    def of(cls, graph: AnnotatedGraph, done: GraphInference, num_devices: int) -> ModelPlan:
        """Return the plan of a graph whose forms are known."""
        moved = zip(graph.nodes, crossings_of(graph, done, num_devices), strict=True)
        return cls(tuple([replace(crossing, node=node.name) for node, found in moved for crossing in found]))

    @property
    def collectives(self) -> dict[str, int]:
        """Return how often each kind of collective occurs; slices are none."""
        return dict(Counter(edge.collective for edge in self.edges if edge.collective != "slice"))

    @property
    def nbytes(self) -> int | None:
        """Return the bytes that all devices receive; None where a size is not known."""
        known = [edge.received for edge in self.edges]
        return None if None in known else sum([sum(received or ()) for received in known])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {
            "edges": [edge.to_json() for edge in self.edges],
            "collectives": self.collectives,
            "nbytes": self.nbytes,
        }

    def __str__(self) -> str:
        rows = [
            (
                edge.tensor,
                f"{edge.when} {edge.node}",
                edge.collective,
                "?" if edge.received is None else format_nbytes(max(edge.received)),
                "?" if edge.peak is None else format_nbytes(edge.peak),
            )
            for edge in self.edges
        ]
        return format_table(["tensor", "where", "collective", "received, most", "held, most"], rows, right=[3, 4])
