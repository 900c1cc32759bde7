"""Models as they run: on which team, with what is known of the sizes that are fed, and in which scope."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from distarray.arguments import mapping
from distarray.array.array import DistArray
from distarray.array.environment import within
from distarray.expr.expr import Environment
from distarray.io.onnx.forms import TensorForm
from distarray.io.onnx.graph import infer_graph
from distarray.io.onnx.operators.model import PlainModel
from distarray.io.onnx.placed_scope import PlacedScope
from distarray.io.onnx.protobuf import read_graph
from distarray.io.onnx.violations import raise_errors
from distarray.sharding.team import Team

__all__ = ["PlacedModel"]


class PlacedModel:
    """A PlacedModel is a model that runs on a team as it is annotated, as often as one likes.

    Its initializers are brought into their forms once.

    Parameters
    ----------
    model
        A ModelProto.
    folder
        Where it lies.
    configuration
        Whose annotations count; None: it has none, and runs as the planner sees fit.
    team
        Members that the devices are; None without a configuration: where its inputs are.
    """

    def __init__(self, model: Any, folder: str | None, configuration: str | None, team: Team | None) -> None:
        self._model = model
        self._plain = PlainModel(model, folder)
        self._configuration = configuration
        self._team = team
        #: By device, name and form.
        self._constants: dict[str, dict[tuple[str, TensorForm], DistArray]] = {}

    def run(self, inputs: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
        """Run the model; see `OnnxModel.run`."""
        feeds = mapping(inputs, "inputs", "names of inputs to arrays")
        team = self._team
        if team is None:
            return self._plain.run(feeds)
        for name, x in feeds.items():
            if isinstance(x, DistArray) and x.team != team:
                raise ValueError(
                    f"input {name!r} lies on {x.team!r}, but the model runs on {team!r}; x.to_team(team) moves it"
                )
        device = next((x.device for x in feeds.values() if isinstance(x, DistArray)), "cpu")
        with within(Environment(team, device)):
            if self._configuration is None:
                return self._plain.run(feeds)
            given = self._plain.checked(feeds)
            graph = read_graph(self._model, {name: x for name, x in feeds.items() if hasattr(x, "shape")})
            inference = infer_graph(graph, self._configuration, team.size, strict=strict)
            raise_errors(inference.violations)
            scope = partial(
                PlacedScope,
                nodes=graph.nodes,
                inference=inference,
                configuration=self._configuration,
                num_devices=team.size,
                strict=strict,
                constants=self._constants.setdefault(device, {}),
            )
            return self._plain.run_in(scope, given)
