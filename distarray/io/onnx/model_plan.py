"""Plans of annotated models: the collective on each edge, and what every device receives and holds for it.

An edge is a tensor that is brought into another form before a node or after its own (G-3, G-4), or a sum of which
each device has a part (R-1, M-1). Its name follows from the two forms, its bytes from the elements that the owners of
the target lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.diagnostics.table import format_nbytes, format_table
from distarray.io.onnx.forms import AxisCut, TensorForm, is_identical, n_shards, shard_ranges
from distarray.io.onnx.graph import AnnotatedGraph, AnnotatedNode, GraphInference
from distarray.io.onnx.inference import NodeInference
from distarray.io.onnx.slabs import cut_of_loop
from distarray.sharding.cuts import boundaries

#: Pairs of shards of source and target for which bytes are counted, and indices of a fused axis.
MAX_PAIRS = 1 << 22


class PlannedEdge(NamedTuple):
    """A PlannedEdge is one collective of an annotated model.

    Parameters
    ----------
    tensor
        What is brought into another form, or summed.
    node
        At which node.
    when
        ``"before"`` it, or ``"after"``.
    collective
        ``slice`` (every device has its part already), ``broadcast``, ``permute``, ``scatter``, ``gather``,
        ``all-gather``, ``all-to-all``; of sums ``reduce``, ``all-reduce``, ``reduce-scatter``.
    received
        Bytes that each device gets from others; None where sizes are not known.
    peak
        Most bytes that a device holds of what is there before and after; None likewise.
    """

    tensor: str
    node: str
    when: str
    collective: str
    received: tuple[int, ...] | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A ModelPlan is what moves when an annotated model runs, in the order of its nodes.

    Parameters
    ----------
    edges
        All of it; slices of what a device has are among them.
    """

    edges: tuple[PlannedEdge, ...]

    @classmethod
    def of(cls, graph: AnnotatedGraph, done: GraphInference, num_devices: int) -> ModelPlan:
        """Return the plan of a graph whose forms are known."""
        return cls(tuple(_edges(graph, done, num_devices)))

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
            "edges": [edge._asdict() for edge in self.edges],
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


def _edges(graph: AnnotatedGraph, done: GraphInference, num_devices: int) -> Iterator[PlannedEdge]:
    made = {name: done.forms[name] for name in graph.inputs if name in done.forms}
    for node, here, inferred in zip(graph.nodes, done.node_forms, done.nodes, strict=True):
        for name in dict.fromkeys(filter(None, node.inputs)):
            if name in here and name in made and not made[name].is_same(here[name]):
                yield _edge(graph, name, node, "before", made[name], here[name], num_devices)
        if inferred is not None:
            yield from _after(graph, node, here, inferred, num_devices)
        made.update({name: here[name] for name in node.outputs if name in here})


def _after(
    graph: AnnotatedGraph, node: AnnotatedNode, here: dict[str, TensorForm], inferred: NodeInference, num_devices: int
) -> Iterator[PlannedEdge]:
    forms = [here.get(name) for name in node.inputs]
    n_parts = prod([n_shards(cut_of_loop(loop, forms)) for loop in inferred.reduced or ()])
    for name, natural in inferred.natural.items():
        form = here[name]
        n_taking_part = min(n_parts, max(map(len, natural.owners)))
        if n_taking_part > 1:
            yield _sum(graph, name, node, natural, form, n_taking_part, num_devices)
        elif not natural.is_same(form):
            yield _edge(graph, name, node, "after", natural, form, num_devices)


def collective_of(source: TensorForm, target: TensorForm) -> str:
    """Return the collective that takes a tensor from one form to another, where some device lacks something."""
    if len(source.cuts) == len(target.cuts) and all(map(is_identical, source.cuts, target.cuts)):
        is_more = all(a <= b for a, b in zip(source.owners, target.owners, strict=True))
        return "broadcast" if is_more else "permute"
    if len(target.owners) == 1:
        return "all-gather" if len(target.devices) > 1 else "gather"
    return "scatter" if len(source.owners) == 1 else "all-to-all"


def sum_of(natural: TensorForm, target: TensorForm) -> str:
    """Return the collective that makes a tensor of partial results.

    Parameters
    ----------
    natural
        Its owners are the devices that have parts.
    target
        How it is to lie.
    """
    if len(target.owners) > len(natural.owners):
        return "reduce-scatter"
    return "reduce" if all(len(owners) == 1 for owners in target.owners) else "all-reduce"


def _edge(
    graph: AnnotatedGraph, name: str, node: AnnotatedNode, when: str, source: TensorForm, target: TensorForm, n: int
) -> PlannedEdge:
    counted = _elements(source, target, n)
    is_local = counted is not None and not counted[0].any()
    kind = "slice" if is_local or _has_everything(source, target) else collective_of(source, target)
    itemsize = graph.itemsizes.get(name, 0)
    if counted is None or not itemsize:
        return PlannedEdge(name, node.name, when, kind, None, None)
    received, held = counted
    return PlannedEdge(
        name, node.name, when, kind, tuple([int(k) * itemsize for k in received]), int(held.max()) * itemsize
    )


def _has_everything(source: TensorForm, target: TensorForm) -> bool:
    """Return whether every device that is to have something has the whole tensor."""
    return len(source.owners) == 1 and target.devices <= source.devices


def _sum(
    graph: AnnotatedGraph, name: str, node: AnnotatedNode, natural: TensorForm, form: TensorForm, n_parts: int, n: int
) -> PlannedEdge:
    """Return the edge of a sum: an owner gets of each other part what it owns; of an all-reduce the sum is scattered
    first, and then gathered.
    """
    kind, itemsize = sum_of(natural, form), graph.itemsizes.get(name, 0)
    sizes, whole = _sizes(form), _sizes(natural)
    if sizes is None or whole is None or not itemsize:
        return PlannedEdge(name, node.name, "after", kind, None, None)
    received, held = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for size, owners in zip(sizes, form.owners, strict=True):
        for device in owners:
            share = -(-2 * size * (n_parts - 1) // n_parts) if kind == "all-reduce" else size * (n_parts - 1)
            received[device] += share
            held[device] += size
    for size, owners in zip(whole, natural.owners, strict=True):
        held[list(owners)] += size
    return PlannedEdge(
        name, node.name, "after", kind, tuple((received * itemsize).tolist()), int(held.max()) * itemsize
    )


def _known(form: TensorForm) -> list[AxisCut] | None:
    """Return the entries of each axis; None where a size is not known."""
    if form.shape is None or not all(isinstance(n, int) for n in form.shape):
        return None
    return [
        cut if len(cut) > 1 else ((n, cut[0][1] if cut else 1),) for n, cut in zip(form.shape, form.cuts, strict=True)
    ]


def _sizes(form: TensorForm) -> list[int] | None:
    """Return the elements of each shard; None where a size is not known."""
    cuts = _known(form)
    if cuts is None:
        return None
    lengths = [np.array([prod(map(len, shard_ranges(cut, i))) for i in range(n_shards(cut))], np.int64) for cut in cuts]
    total: np.ndarray[Any, Any] = reduce(np.kron, lengths, np.ones(1, np.int64))
    return [int(n) for n in total]


def _elements(
    source: TensorForm, target: TensorForm, num_devices: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    """Return the elements that each device receives, and those that it holds before and after together; None where
    sizes are not known or shards are too many.
    """
    before, after = _known(source), _known(target)
    if before is None or after is None or len(before) != len(after):
        return None
    fused = [n for n, *cuts in zip(source.shape or (), before, after, strict=True) if max(map(len, cuts)) > 1]
    n_pairs = len(source.owners) * len(target.owners)
    if max([n_pairs, *[int(n or 0) for n in fused]]) > MAX_PAIRS:
        return None
    overlap = np.ones((1, 1), np.int64)
    for a, b in zip(after, before, strict=True):
        overlap = np.kron(overlap, _overlaps(a, b))
    holds, wants = _owned(source.owners, num_devices), _owned(target.owners, num_devices)
    own = np.einsum("td,ts,sd->d", wants, overlap, holds, optimize=True)
    wanted, held = wants.T @ overlap.sum(axis=1), holds.T @ overlap.sum(axis=0)
    return wanted - own, wanted + held


def _overlaps(a: AxisCut, b: AxisCut) -> np.ndarray[Any, Any]:
    """Return how many indices of an axis each shard of one cut has in common with each of another."""
    common: np.ndarray[Any, Any]
    if len(a) > 1 or len(b) > 1:
        common = _masks(a) @ _masks(b).T
        return common
    (n, i), (_, j) = a[0], b[0]
    one, other = np.array(boundaries(int(n or 0), i)), np.array(boundaries(int(n or 0), j))
    common = np.minimum(one[1:, None], other[1:]) - np.maximum(one[:-1, None], other[:-1])
    common = np.maximum(common, 0)
    return common


def _masks(cut: AxisCut) -> np.ndarray[Any, Any]:
    """Return which indices of an axis each shard has, as rows of zeros and ones."""
    rows = []
    for i in range(n_shards(cut)):
        row = np.ones(1, np.int64)
        for (n, _), found in zip(cut, shard_ranges(cut, i), strict=True):
            entry = np.zeros(int(n or 0), np.int64)
            entry[found.start : found.stop] = 1
            row = np.kron(row, entry)
        rows.append(row)
    return np.stack(rows)


def _owned(owners: Sequence[frozenset[int]], num_devices: int) -> np.ndarray[Any, Any]:
    found = np.zeros((len(owners), num_devices), np.int64)
    for i, devices in enumerate(owners):
        found[i, list(devices)] = 1
    return found
