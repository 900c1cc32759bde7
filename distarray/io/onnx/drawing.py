"""Drawings of annotated models: the form of every tensor at every node, and the collectives between them.

As text for everybody, and as a graph where the package ``graphviz`` is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distarray.io.onnx.crossings import Crossing, crossings_of
from distarray.io.onnx.forms import TensorForm, everywhere, n_shards
from distarray.io.onnx.graph import GraphInference, infer_graph, with_sizes
from distarray.io.onnx.model import OnnxModel, load
from distarray.io.onnx.violations import raise_errors
from distarray.lazy import import_extra
from distarray.tables import format_nbytes, format_table

#: Devices, and shards, that a form names.
SHOWN = 4


@dataclass(frozen=True, slots=True, repr=False)
class ModelDrawing:
    """A ModelDrawing shows the forms of a model and what moves between them: as text, and as a graph.

    Parameters
    ----------
    model
        What is drawn.
    inference
        Its forms.
    moved
        Per node what crosses between devices.
    """

    model: OnnxModel
    inference: GraphInference
    moved: tuple[tuple[Crossing, ...], ...]

    def __str__(self) -> str:
        rows = []
        for node, here, crossings in zip(self.model.graph.nodes, self.inference.node_forms, self.moved, strict=True):
            title = (node.name, node.op_type)
            for side, names in (("reads", node.inputs), ("makes", node.outputs)):
                for name in dict.fromkeys(filter(None, names)):
                    moved = _moved(crossings, name, side == "makes")
                    rows.append((*title, side, name, *shown_form(here[name], self.model.num_devices), moved))
                    title = ("", "")
        return format_table(["node", "operator", "", "tensor", "shape/shards", "devices", "collective"], rows)

    __repr__ = __str__

    def graph(self) -> Any:
        """Return the drawing as a ``graphviz.Digraph``: nodes are operators, and edges tensors with their forms.

        Edges along which something moves are red, dashed ones are taken apart where they lie.

        Raises
        ------
        ModuleNotFoundError
            If ``graphviz`` is not installed: the extra is ``viz``.
        """
        graphviz = import_extra("graphviz", "drawing graphs of models", "viz")
        made = graphviz.Digraph(node_attr={"shape": "box"}, edge_attr={"fontsize": "10"})

        def text(*lines: str) -> str:
            return "\n".join([graphviz.escape(line) for line in lines if line])

        maker: dict[str, str] = {}
        for number, (node, crossings) in enumerate(zip(self.model.graph.nodes, self.moved, strict=True)):
            here, key = self.inference.node_forms[number], f"n{number}"
            after = [f"{said} of {name}" for name in node.outputs if (said := _moved(crossings, name, True))]
            made.node(key, text(node.name, node.op_type, *after), color="red" if after else "black")
            for name in dict.fromkeys(filter(None, node.inputs)):
                if name not in maker:
                    maker[name] = f"t{len(maker)}"
                    made.node(maker[name], text(name), shape="ellipse")
                moved = _moved(crossings, name, False)
                shape, devices = shown_form(here[name], self.model.num_devices)
                style = {"": {}, "slice": {"style": "dashed"}}.get(moved, {"color": "red", "fontcolor": "red"})
                made.edge(maker[name], key, text(name, shape, f"on {devices}", moved), **style)
            maker.update((name, key) for name in node.outputs if name)
        for number, value in enumerate(self.model.model.graph.output):
            shape, devices = shown_form(self.inference.forms[value.name], self.model.num_devices)
            made.node(f"o{number}", text(value.name), shape="ellipse")
            if value.name in maker:
                made.edge(maker[value.name], f"o{number}", text(value.name, shape, f"on {devices}"))
        return made

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, str]:
        """Return text, and where graphviz is there the graph as SVG: what notebooks show."""
        found = {"text/plain": str(self)}
        try:
            found["image/svg+xml"] = self.graph().pipe(format="svg", encoding="utf-8")
        except (ModuleNotFoundError, OSError, RuntimeError):  # the package, or the program that it calls
            pass
        return found


def shown_form(form: TensorForm, num_devices: int) -> tuple[str, str]:
    """Return how tables say a form: its shape with shards, and the devices of each shard."""
    if form.shape is None:
        shape = "?"
    else:
        shards = [(n, n_shards(cut)) for n, cut in zip(form.shape, form.cuts, strict=True)]
        said = [("?" if n is None else str(n)) + (f"/{k}" if k > 1 else "") for n, k in shards]
        shape = " ".join(said) or "scalar"
    if form.owners == (everywhere(num_devices),):
        return shape, "all"
    return shape, _shortened([_shortened([str(d) for d in sorted(owners)], ",") for owners in form.owners], " ")


def _moved(crossings: tuple[Crossing, ...], name: str, is_after: bool) -> str:
    """Return what a tensor moves at a node."""
    return ", ".join(
        crossing.collective + (f" {format_nbytes(crossing.total)}" if crossing.total else "")
        for crossing in crossings
        if (crossing.tensor, crossing.is_after) == (name, is_after)
    )


def _shortened(items: list[str], separator: str) -> str:
    return separator.join(items if len(items) <= SHOWN else [*items[:SHOWN], ".."])


def draw(model: Any, *, sizes: Mapping[str, int] | None = None) -> ModelDrawing:
    """Return a drawing of a model: every node with the forms of its tensors, and the collectives that lie between.

    Parameters
    ----------
    model
        As `load` returns it, or anything that it became; or what `load` takes.
    sizes
        Numbers for symbols of its shapes; without them no bytes are said.

    Returns
    -------
    ModelDrawing
        ``print`` shows it as text, notebooks as a graph, and ``graph()`` is a ``graphviz.Digraph``.

    Raises
    ------
    ShardingError
        If the model has an error.
    """
    model = model if isinstance(model, OnnxModel) else load(model)
    inference = infer_graph(model.graph, model.configuration, model.num_devices)
    raise_errors(inference.violations)
    graph, counted = model.graph, inference
    if sizes:
        graph = with_sizes(model.graph, sizes)
        counted = infer_graph(graph, model.configuration, model.num_devices)
        raise_errors(counted.violations)
    return ModelDrawing(model, inference, tuple(crossings_of(graph, counted, model.num_devices)))
