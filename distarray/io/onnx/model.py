"""Models: what `load` returns. A model is checked as a whole, and completed into another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distarray.io.onnx.crossings import ModelPlan
from distarray.io.onnx.forms import TensorForm
from distarray.io.onnx.graph import AnnotatedGraph, GraphInference, infer_graph, is_annotatable
from distarray.io.onnx.inference import MAX_DEVICES
from distarray.io.onnx.specs import write_spec
from distarray.io.onnx.violations import Violation, raise_errors
from distarray.sharding.team import Team


@dataclass(frozen=True, slots=True, repr=False)
class OnnxModel:
    """An OnnxModel is an ONNX model under one configuration of devices.

    Parameters
    ----------
    model
        The ModelProto; it is never changed.
    graph
        What it says about shardings.
    configuration
        Name of the configuration; None: the model has none, and every device has every tensor whole.
    num_devices
        Devices of the configuration.
    team
        Members that the devices are, in their order; None: threads of this process.
    folder
        Where the file lies; elements beside it are read by the tasks that need them.
    prepared
        What runs share, once there was one.
    """

    model: Any
    graph: AnnotatedGraph
    configuration: str | None
    num_devices: int
    team: Team | None = None
    folder: str | None = None
    prepared: list[Any] = field(default_factory=list, compare=False)

    def check(self, strict: bool = True) -> list[Violation]:
        """Return all that is wrong, and what is worth a warning; an empty list if nothing is. Nothing is run.

        Parameters
        ----------
        strict
            False: where an operand is whole, and the devices that need a slice of it have it, that is a warning; so is
            a spec without devices none.
        """
        return self._inferred(strict).violations

    def infer(self, strict: bool = True) -> InferredModel:
        """Return the model with a spec for every input and output of every node that can be annotated.

        Raises
        ------
        ShardingError
            If there is an error; it holds all violations.
        """
        done = self._inferred(strict)
        raise_errors(done.violations)
        model = self.model
        if self.configuration is not None:
            from distarray.io.onnx.protobuf import with_specs

            specs = [
                {name: write_spec(form) for name, form in forms.items()} if is_annotatable(node) else None
                for node, forms in zip(self.graph.nodes, done.node_forms, strict=True)
            ]
            model = with_specs(model, self.configuration, specs)
        return InferredModel(
            model, self.graph, self.configuration, self.num_devices, self.team, self.folder, inference=done
        )

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        team: Team | None = None,
        configuration: str | None = None,
        strict: bool = True,
    ) -> dict[str, Any]:
        """Run the model on its team, each tensor as it is annotated. Deferred, unless shapes depend on values.

        Parameters
        ----------
        inputs
            Host arrays or DistArrays by name; what lies on the team as the first node wants it is read there.
        team, configuration
            Others than those of the model.
        strict
            See `check`.

        Returns
        -------
        dict of str to DistArray
            The outputs by name, each as the model says.

        Raises
        ------
        OnnxShardingError
            If there is an error in the annotations, or a size that is fed contradicts one of them.
        TypeError, ValueError
            If an input is missing, unknown, or of another dtype, shape or team, or the team has another size.
        """
        from distarray.io.onnx.running import RunningModel

        if team is not None or configuration is not None:
            return self._with(team, configuration).run(inputs, strict=strict)
        if not self.prepared:
            team = self.team
            if team is None and self.configuration is not None:
                team = process_team(self.num_devices)
            self.prepared.append(RunningModel(self.model, self.folder, self.configuration, team))
        outputs: dict[str, Any] = self.prepared[0].run(inputs, strict=strict)
        return outputs

    def _with(self, team: Team | None, configuration: str | None) -> OnnxModel:
        """Return the model on another team, or under another configuration."""
        return load(self.model, configuration or self.configuration, team or self.team, folder=self.folder)

    def plan(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        team: Team | None = None,
        configuration: str | None = None,
        strict: bool = True,
    ) -> ModelPlan:
        """Return the collectives of a run with what each device receives and holds. Nothing is run.

        Parameters
        ----------
        inputs
            Arrays, or shapes, of inputs by name: they say how long axes are that the model has symbols for.
        team, configuration, strict
            See `run`.

        Raises
        ------
        OnnxShardingError
            If there is an error in the annotations.
        """
        from distarray.io.onnx.protobuf import known_of, read_graph

        if team is not None or configuration is not None:
            return self._with(team, configuration).plan(inputs, strict=strict)
        graph = read_graph(self.model, known_of(inputs), self.folder) if inputs else self.graph
        done = infer_graph(graph, self.configuration, self.num_devices, strict=strict)
        raise_errors(done.violations)
        return ModelPlan.of(graph, done, self.num_devices)

    def _inferred(self, strict: bool) -> GraphInference:
        return infer_graph(self.graph, self.configuration, self.num_devices, strict=strict)

    def __repr__(self) -> str:
        where = "no configuration" if self.configuration is None else f"configuration={self.configuration!r}"
        return f"{type(self).__name__}({len(self.graph.nodes)} nodes, {where}, num_devices={self.num_devices})"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class InferredModel(OnnxModel):
    """An InferredModel is a model with the form of every tensor.

    Parameters
    ----------
    model, graph, configuration, num_devices, team, folder, prepared
        Those of the `OnnxModel` that was inferred; the nodes of `model` have all their specs.
    """

    inference: GraphInference

    @property
    def forms(self) -> dict[str, dict[str, Any]]:
        """Return the canonical form of each tensor, as `infer_node` gives it."""
        return {name: form.to_json(name) for name, form in self.inference.forms.items()}

    @property
    def tensor_forms(self) -> dict[str, TensorForm]:
        """Return the form of each tensor."""
        return self.inference.forms

    @property
    def reshards(self) -> list[dict[str, str | None]]:
        """Return each tensor that is brought into another form, and before which node; None: after its own."""
        return self.inference.reshards

    @property
    def stages(self) -> dict[str, int]:
        """Return the pipeline stage of each node that has one."""
        return self.inference.stages

    @property
    def warnings(self) -> list[Violation]:
        """Return the violations that are no errors."""
        return self.inference.violations

    def infer(self, strict: bool = True) -> InferredModel:
        """Return the model itself read anew: what is complete stays what it is."""
        return load(self.model, self.configuration, self.team, folder=self.folder).infer(strict)


def process_team(n: int) -> Team:
    """Return a team of so many threads of this process, also where a Client is active."""
    return Team((n,), ("device",), members=range(n))


def load(
    path_or_proto: Any, configuration: str | None = None, team: Team | None = None, *, folder: str | None = None
) -> OnnxModel:
    """Return an ONNX model with its annotations; nothing is run, and external data are not read.

    Parameters
    ----------
    path_or_proto
        Path of a file, or a ModelProto.
    configuration
        Name of one of its configurations. None: the only one; a model without any is not annotated.
    team
        Members that the devices are, in rank order, exactly as many. None: threads of this process, one per device.
    folder
        Where a ModelProto lies that has elements in other files; by default that of the path.

    Raises
    ------
    ValueError
        If the file is no model, the configuration is not there or not said among several, or the team has another
        size. What is wrong with a model that could be read is said by `OnnxModel.check`.
    ImportError
        If the ``onnx`` package is missing: the extra is ``dask-distarray[onnx]``.
    """
    from distarray.io.onnx.protobuf import folder_of, read_graph, read_model

    model = read_model(path_or_proto)
    folder = folder_of(path_or_proto) if folder is None else folder
    graph = read_graph(model, folder=folder)
    names = [name for name, _, _ in graph.configurations]
    if configuration is None and len(names) > 1:
        raise ValueError(f"the model has the configurations {', '.join(map(repr, names))}; say which one is meant")
    if configuration is not None and configuration not in names:
        have = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"configuration={configuration!r} does not exist; the model has {have}")
    chosen = names[0] if configuration is None and names else configuration
    said = next((devices for name, devices, _ in graph.configurations if name == chosen), None)
    if team is not None and said is not None and team.size != said:
        raise ValueError(f"configuration {chosen!r} has {said} devices, but the team has {team.size} members")
    fallback = 1 if team is None else team.size
    num_devices = said if said is not None and 1 <= said <= MAX_DEVICES else fallback
    return OnnxModel(model, graph, chosen, num_devices, team, folder)
