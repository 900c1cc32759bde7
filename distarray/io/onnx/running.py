"""Runs of annotated models: on which team, with what is known of the sizes that are fed, and as which scope."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from distarray.arguments import mapping
from distarray.array.array import DistArray
from distarray.array.environment import within
from distarray.expr.expr import Environment
from distarray.io.onnx.graph import infer_graph
from distarray.io.onnx.operators.model import PlainModel
from distarray.io.onnx.placed_scope import PlacedScope
from distarray.io.onnx.protobuf import read_graph
from distarray.io.onnx.violations import raise_errors
from distarray.sharding.team import Team

if TYPE_CHECKING:
    from distarray.io.onnx.model import OnnxModel

__all__ = ["run", "team_of"]


def team_of(model: OnnxModel) -> Team:
    """Return the team of a model; without one, threads of this process."""
    return model.team or Team((model.num_devices,), ("device",), members=range(model.num_devices))


def run(model: OnnxModel, inputs: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Run a model; see `OnnxModel.run`."""
    feeds = mapping(inputs, "inputs", "names of inputs to arrays")
    if model.configuration is None and model.team is None:
        return _plain(model).run(feeds)
    team = team_of(model)
    for name, x in feeds.items():
        if isinstance(x, DistArray) and x.team != team:
            raise ValueError(
                f"input {name!r} lies on {x.team!r}, but the model runs on {team!r}; x.to_team(team) moves it"
            )
    device = next((x.device for x in feeds.values() if isinstance(x, DistArray)), "cpu")
    with within(Environment(team, device)):
        if model.configuration is None:
            return _plain(model).run(feeds)
        shapes = {name: tuple(x.shape) for name, x in feeds.items() if hasattr(x, "shape")}
        graph = read_graph(model.model, shapes)
        inference = infer_graph(graph, model.configuration, model.num_devices, strict=strict)
        raise_errors(inference.violations)
        constants = model.prepared.setdefault(f"{team.id} {device}", {})
        scope = partial(
            PlacedScope, nodes=graph.nodes, inference=inference, num_devices=model.num_devices, strict=strict,
            constants=constants,
        )  # fmt: skip
        return _plain(model).run_in(scope, feeds)


def _plain(model: OnnxModel) -> PlainModel:
    if "plain" not in model.prepared:
        model.prepared["plain"] = PlainModel(model.model, model.folder)
    found: PlainModel = model.prepared["plain"]
    return found
