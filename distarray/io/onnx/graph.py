"""Annotated graphs: what a model says about its nodes, without the protobuf, and the rules of graphs (G-1 to G-6).

A graph is read by `protobuf` and judged here, node by node in order: every input gets the form that the node gives it,
else the one of its producer; every output the form that the node gives it, else the one that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from distarray.arguments import shown
from distarray.io.onnx.forms import Size, TensorForm, everywhere
from distarray.io.onnx.inference import MAX_DEVICES, GivenOutput, NodeInference, infer_outputs
from distarray.io.onnx.operator_classes import OPERATORS
from distarray.io.onnx.specs import JsonSpec, read_spec
from distarray.io.onnx.violations import Violation, has_errors


@dataclass(frozen=True, slots=True)
class NodeAnnotation:
    """A NodeAnnotation is what a node says for one configuration.

    Parameters
    ----------
    configuration
        Name of the configuration.
    specs
        Tensor and spec, as listed.
    stage
        Pipeline stage: a hint (G-6).
    """

    configuration: str
    specs: tuple[tuple[str, JsonSpec], ...] = ()
    stage: int | None = None


@dataclass(frozen=True, slots=True)
class AnnotatedNode:
    """An AnnotatedNode is a node of a graph with all that it says about devices.

    Parameters
    ----------
    name
        ``#i`` if it has none.
    op_type
        With its domain where that is not ONNX's own.
    attrs
        Attributes, and constant inputs under their names.
    inputs, outputs
        Names of tensors; ``""`` for what is left out.
    annotations
        For all configurations.
    is_annotated_inside
        Whether nodes of a subgraph (of If, Loop, Scan) are annotated.
    """

    name: str
    op_type: str
    attrs: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    annotations: tuple[NodeAnnotation, ...] = ()
    is_annotated_inside: bool = False


@dataclass(frozen=True, slots=True)
class AnnotatedGraph:
    """An AnnotatedGraph is a model as far as shardings are concerned.

    Parameters
    ----------
    nodes
        In an order in which they can run.
    shapes
        Of tensors, as far as they are known; symbols are strings.
    inputs
        Inputs and initializers.
    configurations
        Name, number of devices and names of devices of each configuration; None where something is missing.
    ir_version
        Of the file.
    itemsizes
        Bytes of an element of tensors, as far as they are known.
    constants
        Initializers: of the inputs those that are the same in every run.
    faults
        What is wrong with the model as such; with an error among them there are no nodes.
    """

    nodes: tuple[AnnotatedNode, ...]
    shapes: Mapping[str, tuple[Size, ...] | None]
    inputs: frozenset[str]
    configurations: tuple[tuple[str | None, int | None, tuple[str, ...]], ...] = ()
    ir_version: int = 11
    itemsizes: Mapping[str, int] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    faults: tuple[Violation, ...] = ()


@dataclass(slots=True)
class GraphInference:
    """A GraphInference is what follows for a whole graph.

    Parameters
    ----------
    forms
        Of every tensor, as its producer leaves it.
    node_forms
        Per node the form of each tensor that it reads or makes, as it reads or makes it.
    nodes
        Per node what followed for it; None where its inputs are not known.
    reshards
        Tensors that are brought into another form, and before which node; None: after the node that makes them.
    stages
        Pipeline stage of nodes that have one.
    violations
        Errors and warnings.
    """

    forms: dict[str, TensorForm] = field(default_factory=dict)
    node_forms: list[dict[str, TensorForm]] = field(default_factory=list)
    nodes: list[NodeInference | None] = field(default_factory=list)
    reshards: list[dict[str, str | None]] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)


def infer_graph(
    graph: AnnotatedGraph, configuration: str | None, num_devices: int, *, strict: bool = True
) -> GraphInference:
    """Return the form of every tensor at every node, and all violations.

    Parameters
    ----------
    configuration, num_devices
        Whose annotations count, and its devices; None: nobody's.
    strict
        As of `infer_node`.
    """
    done = GraphInference()
    done.violations += graph.faults
    if not has_errors(done.violations):
        done.violations += _configuration_findings(graph)
    if has_errors(done.violations):
        return done  # without its devices nothing can be said of a spec
    whole = everywhere(num_devices)
    for name in graph.inputs:  # G-2
        done.forms[name] = TensorForm.whole(graph.shapes.get(name), whole)
    known = {name for name, _, _ in graph.configurations}
    for node in graph.nodes:
        _judge(graph, node, configuration, known, num_devices, strict, done)
    return done


def _configuration_findings(graph: AnnotatedGraph) -> list[Violation]:
    """Return what is wrong with the configurations, and with the model as a whole (G-5, A-12)."""
    found = []
    for name, num_devices, devices in graph.configurations:
        label = "a configuration" if name is None else f"configuration {name!r}"
        if name is None:
            found.append(Violation("G-5", "configuration-name-missing", "a configuration has no name"))
        if num_devices is None:
            found.append(Violation("G-5", "num-devices-missing", f"{label} does not say how many devices it has"))
        elif not 1 <= num_devices <= MAX_DEVICES:
            text = f"{label} has {num_devices} devices; 1 to {MAX_DEVICES} can be"
            found.append(Violation("G-5", "num-devices-invalid", text))
        elif devices and len(devices) != num_devices:
            text = f"{label} names {len(devices)} devices and has {num_devices}"
            found.append(Violation("G-5", "device-names-length", text))
    is_annotated = any(node.annotations or node.is_annotated_inside for node in graph.nodes)
    if graph.configurations and not is_annotated:
        text = "the model has configurations, but no node is annotated; converting its version drops annotations"
        found.append(Violation("A-12", "nothing-annotated", text))
    if graph.ir_version < 11 and (is_annotated or graph.configurations):
        text = f"IR version {graph.ir_version} has no annotations; they came with version 11"
        found.append(Violation("G-5", "ir-version", text))
    return found


def _annotation_of(
    node: AnnotatedNode, configuration: str | None, known: set[str | None], done: GraphInference
) -> NodeAnnotation | None:
    """Return what a node says for the configuration, once what is wrong with its entries was said (G-5)."""
    mine = None
    seen: set[str] = set()
    for entry in node.annotations:
        findings = []
        if entry.configuration not in known:
            text = f"configuration {entry.configuration!r} is none of the model's"
            findings.append(Violation("G-5", "unknown-configuration", text))
        if entry.configuration in seen:
            text = f"configuration {entry.configuration!r} has two entries at one node"
            findings.append(Violation("G-5", "duplicate-configuration", text))
        if entry.stage is not None and entry.stage < 0:
            findings.append(Violation("G-6", "pipeline-stage", f"pipeline stage {entry.stage} is negative"))
        done.violations += [finding.at(node.name, node.op_type) for finding in findings]
        if entry.configuration == configuration and entry.configuration not in seen:
            mine = entry
        seen.add(entry.configuration)
    if node.is_annotated_inside:
        finding = Violation("F-1", "unsupported-op", "nodes of its subgraph are annotated, which is not supported")
        done.violations.append(finding.at(node.name, node.op_type))
    return mine


def _judge(
    graph: AnnotatedGraph,
    node: AnnotatedNode,
    configuration: str | None,
    known: set[str | None],
    num_devices: int,
    strict: bool,
    done: GraphInference,
) -> None:
    """Infer one node, and put what follows into `done`."""

    def report(findings: Sequence[Violation], tensors: Sequence[str]) -> None:
        done.violations.extend(finding.at(node.name, node.op_type, tensors) for finding in findings)

    mine = _annotation_of(node, configuration, known, done)
    if mine is not None and mine.stage is not None:
        done.stages[node.name] = mine.stage
    specs = _specs_of(node, mine, report)
    here: dict[str, TensorForm] = {}
    done.node_forms.append(here)
    done.nodes.append(None)
    is_lost = False
    for name in dict.fromkeys(filter(None, node.inputs)):
        form = done.forms.get(name)
        if name in specs:
            shape = form.shape if form is not None and form.shape is not None else graph.shapes.get(name)
            reading = read_spec(specs[name], shape, num_devices, strict=strict)
            report(reading.findings, [name])
            if form is not None and reading.form is not None and not form.is_same(reading.form):
                done.reshards.append({"tensor": name, "before": node.name})  # G-4
            form = reading.form
        if form is None:
            is_lost = True  # an error that was said where the tensor was made
        else:
            here[name] = form
    if is_lost:
        return
    inferred = infer_at(graph, node, here, num_devices, specs, is_annotated=bool(specs), strict=strict)
    done.nodes[-1] = inferred
    report(inferred.findings, [name for name in (*node.inputs, *node.outputs) if name])
    if any(finding.code == "gathered" for finding in inferred.findings):
        for name, form in here.items():
            if len(form.owners) > 1:
                done.reshards.append({"tensor": name, "before": node.name})
                here[name] = TensorForm.whole(form.shape, everywhere(num_devices))
    for name, form in inferred.outputs:
        done.forms[name] = here[name] = form
    done.reshards += [{"tensor": name, "before": None} for name in inferred.reshards]


def infer_at(
    graph: AnnotatedGraph,
    node: AnnotatedNode,
    forms: Mapping[str, TensorForm],
    num_devices: int,
    specs: Mapping[str, JsonSpec] = MappingProxyType({}),
    *,
    is_annotated: bool,
    strict: bool = True,
) -> NodeInference:
    """Return what follows at a node whose inputs have these forms, and whose outputs these specs."""
    given = [GivenOutput(name, specs.get(name), graph.shapes.get(name)) for name in node.outputs]
    operands = [forms[name] if name else None for name in node.inputs]
    return infer_outputs(
        node.op_type, node.attrs, operands, given, num_devices, is_annotated=is_annotated, strict=strict
    )


def _specs_of(node: AnnotatedNode, mine: NodeAnnotation | None, report: Any) -> dict[str, JsonSpec]:
    """Return the spec of each tensor of a node (G-5)."""
    specs: dict[str, JsonSpec] = {}
    there = {name for name in (*node.inputs, *node.outputs) if name}
    for name, spec in mine.specs if mine is not None else ():
        if name not in there:
            report([Violation("G-5", "unknown-tensor", f"{name!r} is no input and no output of the node")], [name])
        elif name in specs:
            report([Violation("G-5", "duplicate-spec", f"tensor {name!r} has two specs at one node")], [name])
        else:
            specs[name] = spec
    return specs


def is_annotatable(node: AnnotatedNode) -> bool:
    """Return whether specs may stand at a node: its operator is in a class that says what they mean."""
    row = OPERATORS.get(node.op_type)
    return row is not None and row.group.is_supported and not node.is_annotated_inside


def with_sizes(graph: AnnotatedGraph, sizes: Mapping[str, int]) -> AnnotatedGraph:
    """Return the graph with numbers for the symbols of its inputs.

    Raises
    ------
    ValueError
        If one has none, or none that a size can be.
    """
    for symbol, n in sizes.items():
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"sizes={{{symbol!r}: {shown(n)}}} is no size: an integer from 1 on is")
    symbols = {n: name for name in graph.inputs for n in graph.shapes.get(name) or () if isinstance(n, str)}
    missing = [n for n in symbols if n not in sizes]
    if missing:
        raise ValueError(
            f"input {symbols[missing[0]]!r} has the symbolic size {missing[0]!r}; say a number for it, as in "
            f"sizes={{{missing[0]!r}: 32}}"
        )
    shapes = {
        name: None if shape is None else tuple([sizes.get(n, n) if isinstance(n, str) else n for n in shape])
        for name, shape in graph.shapes.items()
    }
    return replace(graph, shapes=shapes)
