"""Models as they run: on which team, with what is known of the sizes that are fed, and in which scope."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from distarray.arguments import mapping
from distarray.array.array import DistArray
from distarray.array.environment import within
from distarray.expr.expr import Environment
from distarray.io.onnx.annotated_scope import AnnotatedScope
from distarray.io.onnx.forms import TensorForm
from distarray.io.onnx.graph import AnnotatedGraph, GraphInference, infer_graph
from distarray.io.onnx.operators.model import PlainModel
from distarray.io.onnx.protobuf import known_of, read_graph
from distarray.io.onnx.violations import raise_errors
from distarray.sharding.team import Team


class RunningModel:
    """A RunningModel is a model that runs on a team as it is annotated, as often as one likes.

    Its initializers are brought into their forms once.

    Parameters
    ----------
    model, folder, configuration
        Of the `OnnxModel`; without a configuration it runs as the planner sees fit.
    team
        Members that the devices are; None without a configuration: where its inputs are.
    """

    def __init__(self, model: Any, folder: str | None, configuration: str | None, team: Team | None) -> None:
        self._model = model
        self._folder = folder
        self._plain = PlainModel(model, folder)
        self._configuration = configuration
        self._team = team
        #: What decided the forms of the last run, and what followed for its tensors.
        self._last: tuple[Any, AnnotatedGraph, GraphInference] | None = None
        #: Initializers in their forms: by device, and by name and form.
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
            graph, inference = self._inferred(feeds, team.size, strict)
            scope = partial(
                AnnotatedScope,
                nodes=graph.nodes,
                inference=inference,
                configuration=self._configuration,
                team=team,
                strict=strict,
                constants=self._constants.setdefault(device, {}),
            )
            return self._plain.run_in(scope, given)

    def _inferred(
        self, feeds: Mapping[str, Any], num_devices: int, strict: bool
    ) -> tuple[AnnotatedGraph, GraphInference]:
        """Return what follows for these inputs; that of the last run if nothing is new."""
        known = known_of({name: x for name, x in feeds.items() if hasattr(x, "shape")})
        key = known.shapes, {name: value.tolist() for name, value in known.constants.items()}, strict
        last = self._last  # another thread may run the model with other inputs meanwhile
        if last is None or last[0] != key:
            graph = read_graph(self._model, known, self._folder)
            inference = infer_graph(graph, self._configuration, num_devices, strict=strict)
            raise_errors(inference.violations)
            self._last = last = key, graph, inference
        return last[1:]
