"""Plans of annotated models: the collective on each edge, and what every device receives and holds for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from distarray.io.onnx.crossings import Crossing, crossings_of
from distarray.io.onnx.graph import AnnotatedGraph, GraphInference
from distarray.tables import format_nbytes, format_table


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
        See `Crossing`.
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

    @classmethod
    def of(cls, crossing: Crossing, node: str) -> PlannedEdge:
        """Return a crossing at a node."""
        when = "after" if crossing.is_after else "before"
        received = None if crossing.nbytes is None else tuple(crossing.nbytes.tolist())
        peak = None if crossing.held is None else int(crossing.held.max())
        return cls(crossing.tensor, node, when, crossing.collective, received, peak)


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
        moved = zip(graph.nodes, crossings_of(graph, done, num_devices), strict=True)
        return cls(tuple([PlannedEdge.of(crossing, node.name) for node, found in moved for crossing in found]))

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
