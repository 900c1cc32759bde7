"""Annotations for models that have none: the partition planner picks the cuts of the whole model.

The loops of the model (`loop_graph`) are planned as an EinGraph; where a kernel runs and what it reads is what a node's
specs say. What a plan moves is counted on the forms (`costs`), beside what usual annotations move.

Usual annotations to compare plans with are replication, data parallel, and Megatron's columns and rows. Each is a
choice node by node, in order: what it wants of a node's inputs, given the forms that they have. What cannot be is made
whole everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

from distarray.arguments import count, mapping, number, shown
from distarray.array.array import DistArray
from distarray.array.namespace import namespace
from distarray.errors import MemoryBudgetError
from distarray.expr.expr import Environment
from distarray.io.onnx.costs import ModelCost, model_cost
from distarray.io.onnx.forms import AxisCut, TensorForm, everywhere, n_shards
from distarray.io.onnx.graph import (
    AnnotatedGraph,
    AnnotatedNode,
    GraphInference,
    NodeAnnotation,
    infer_at,
    infer_graph,
    is_annotatable,
    with_sizes,
)
from distarray.io.onnx.loop_graph import LoopGraph, loop_graph
from distarray.io.onnx.model import OnnxModel, load
from distarray.io.onnx.planned_forms import planned_forms, whole_inputs
from distarray.io.onnx.specs import write_spec
from distarray.io.onnx.violations import raise_errors
from distarray.planner.eindecomp import plan
from distarray.planner.rates import Rates
from distarray.runtime.known_rates import rates_for
from distarray.sharding.team import Team
from distarray.tables import format_nbytes, format_seconds, format_table

_Forms: TypeAlias = dict[str, TensorForm]
#: From a node of a graph, the forms of its inputs, and what is the same in every run, to the forms that it is to have.
_Choice: TypeAlias = Callable[[AnnotatedGraph, AnnotatedNode, _Forms, frozenset[str], int], _Forms]


def _replicated(graph: AnnotatedGraph, node: AnnotatedNode, here: _Forms, constants: frozenset[str], n: int) -> _Forms:
    """Return no specs: every device computes everything (G-2)."""
    return {}


def _data_parallel(
    graph: AnnotatedGraph, node: AnnotatedNode, here: _Forms, constants: frozenset[str], n: int
) -> _Forms:
    """Return the first axis of the model's inputs cut where they are read; weights are whole."""
    batches = [name for name in here if name in graph.inputs and name not in constants]
    return {name: cut for name in batches if (cut := _cut(here[name], 0, n)) is not None}


def _megatron(graph: AnnotatedGraph, node: AnnotatedNode, here: _Forms, constants: frozenset[str], n: int) -> _Forms:
    """Return weights cut by columns where the other factor is whole, and by rows where that is cut along them.

    References
    ----------
    Megatron-LM (arXiv 1909.08053), section 3.
    """

    if node.op_type not in ("MatMul", "Gemm") or node.inputs[1] not in constants:
        return {}
    x, weight = here[node.inputs[0]], here[node.inputs[1]]
    if not x.shape or weight.shape is None or len(weight.shape) != 2:
        return {}
    rows, columns = (1, 0) if node.attrs.get("transB") else (0, 1)
    along = x.cuts[0 if node.attrs.get("transA") else -1]
    if n_shards(along) == len(x.owners) > 1:
        cuts: list[AxisCut] = [(), ()]
        cuts[rows] = along
        return {node.inputs[1]: TensorForm(weight.shape, tuple(cuts), x.owners)}
    cut = _cut(weight, columns, n) if len(x.owners) == 1 else None
    return {} if cut is None else {node.inputs[1]: cut}


#: Usual annotations, by the name that reports give them.
USUAL: Mapping[str, _Choice] = MappingProxyType(
    {"replicated": _replicated, "data parallel": _data_parallel, "Megatron": _megatron}
)


def _cut(form: TensorForm, axis: int, n: int) -> TensorForm | None:
    """Return a form with one axis in `n` shards, one for each device; None if it has no such axis, or too few
    elements.
    """
    size = form.shape[axis] if form.shape else None
    if form.shape is None or not isinstance(size, int) or size < n or n == 1:
        return None
    cuts: list[AxisCut] = [()] * len(form.shape)
    cuts[axis] = ((size, n),)
    return TensorForm(form.shape, tuple(cuts), tuple([frozenset([i]) for i in range(n)]))


def _chosen(graph: AnnotatedGraph, num_devices: int, choose: _Choice) -> list[_Forms]:
    """Return what a choice gives node by node; operands that are whole are sliced where others are cut (A-10)."""
    whole = everywhere(num_devices)
    forms = {name: TensorForm.whole(graph.shapes.get(name), whole) for name in graph.inputs}
    constants = set(graph.constants)
    found = []
    for node in graph.nodes:
        here = {name: forms[name] for name in node.inputs if name}
        if constants.issuperset(here):
            constants.update(node.outputs)
        ways: list[_Forms] = [{}]
        if is_annotatable(node):
            gathered = {name: TensorForm.whole(form.shape, whole) for name, form in here.items()}
            ways = [choose(graph, node, here, frozenset(constants), num_devices), {}, gathered]
        for way in ways:
            done = infer_at(graph, node, {**here, **way}, num_devices, is_annotated=bool(way), strict=False)
            if done.error is None:
                break
        found.append(way)
        forms.update(done.outputs)
    return found


#: Limits under which plans are made, as multiples of the memory, until the forms of one keep to it: the planner counts
#: blocks and copies, and not to the byte what devices hold by the forms.
LIMITS = (inf, 1.5, 1.2, 1.0, 0.8, 0.6)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class AnnotatedModel(OnnxModel):
    """An AnnotatedModel is a model whose annotations were planned, with what they cost beside usual ones.

    Parameters
    ----------
    model, graph, configuration, num_devices, team, folder
        Of the `OnnxModel` that `load` returns for it.
    costs
        By name of the annotation: ``"planned"``, and those of `USUAL`.
    specs
        By name of those of `USUAL`, per node its forms.
    """

    costs: Mapping[str, ModelCost]
    specs: Mapping[str, Sequence[Mapping[str, TensorForm]]]

    @property
    def cost(self) -> ModelCost:
        """Return what the planned annotation is predicted to cost."""
        return self.costs["planned"]

    def peer(self, name: str) -> OnnxModel:
        """Return the model with one of the annotations that it was compared with, such as ``"Megatron"``.

        Some of them slice whole operands where they lie: it runs with ``strict=False``.

        Raises
        ------
        ValueError
            If there is none of this name.
        """
        if name == "planned":
            return self
        if name not in self.specs:
            raise ValueError(f"annotation {name!r} is none of planned, {', '.join(self.specs)}")
        assert self.configuration is not None
        return _annotated(self.model, self.configuration, self.num_devices, self.specs[name], self.team, self.folder)

    def measure(self, inputs: Mapping[str, Any], *, n_runs: int = 3) -> dict[str, float]:
        """Run the model by each of the annotations; return the seconds of the fastest run of each, all outputs made.

        Parameters
        ----------
        inputs
            See `OnnxModel.run`.
        n_runs
            Of each annotation, after one that is not counted: it plans, and sends the weights.
        """
        if count(n_runs, "n_runs") < 1:
            raise ValueError("measure: n_runs=0 measures nothing; say 1 or more")
        dx: Any = namespace()
        found = {}
        for name in self.costs:
            model, seconds = self.peer(name), []
            for _ in range(n_runs + 1):
                start = perf_counter()
                outputs = model.run(inputs, strict=False).values()
                dx.wait(*dx.persist(*[y for y in outputs if isinstance(y, DistArray)]))
                seconds.append(perf_counter() - start)
            found[name] = min(seconds[1:])
        return found

    def table(self, measured: Mapping[str, float] | None = None) -> str:
        """Return the predictions as a table: bytes between devices, seconds, and bytes that a device holds at most;
        beside them the seconds that were measured, if `measure` gave some.
        """
        rows = []
        for name, cost in self.costs.items():
            kinds = [c.collective for node in cost.nodes for c in node.crossings if c.collective != "slice"]
            counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "none"
            took = [] if measured is None else [format_seconds(measured[name])]
            numbers = (format_nbytes(cost.nbytes), format_seconds(cost.seconds), *took, format_nbytes(cost.peak_bytes))
            rows.append((name, *numbers, counts))
        head = ["annotation", "moved", "seconds", *["measured"] * (measured is not None), "held", "collectives"]
        return format_table(head, rows, right=range(1, len(head) - 1))


def annotate(
    model: Any,
    team: Team,
    memory: float | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    name: str = "planned",
) -> AnnotatedModel:
    """Return a model whose nodes are annotated so that it runs fastest on a team; nothing is run.

    Parameters
    ----------
    model
        Path of a file, a ModelProto, or what `load` returned. It is not changed; annotations for other configurations
        stay.
    team
        Its members are the devices, in rank order.
    memory
        Bytes that a device may hold: parts of inputs and weights, and what is alive between nodes. None: no limit.
    sizes
        Numbers to plan with for the symbols of its shapes, such as ``{"batch": 32}``. The annotation keeps the symbols.
    name
        Of the configuration.

    Returns
    -------
    AnnotatedModel
        Its ``model`` is the ModelProto, its ``table()`` what it and usual annotations are predicted to cost.

    Raises
    ------
    TypeError
        If the team is none.
    ValueError
        If it is no model, a symbol has no number, or one below 1, or the memory is none.
    ShardingError
        If nodes break rules without annotations already.
    MemoryBudgetError
        If no plan keeps to the memory; says the least that one needs.

    Notes
    -----
    Inputs and initializers are taken to be on every device (G-2), so reading a part of them moves nothing; they count
    in memory. Planning takes time linear in the number of nodes for chains of blocks, see
    `distarray.planner.eindecomp`.
    """
    from distarray.io.onnx.protobuf import folder_of, read_graph, read_model, with_configuration

    if not isinstance(team, Team):
        raise TypeError(f"annotate: team={shown(team)} is no team; write dx.Team((4,), ('d',)) for four devices")
    if memory is not None and number(memory, "memory", real=True) <= 0:
        raise ValueError(f"memory={shown(memory)} must be a number of bytes above 0, or None for no limit")
    known = mapping(sizes or {}, "sizes", "symbols to numbers")
    is_loaded = isinstance(model, OnnxModel)
    proto, folder = (model.model, model.folder) if is_loaded else (read_model(model), folder_of(model))
    source = read_graph(with_configuration(proto, name, team.size, []), folder=folder)
    graph = with_sizes(source, known)
    loops = loop_graph(graph, _inferred(graph, [], team.size))
    rates = rates_for(Environment(team))
    # members run the steps of their programs side by side, and no scheduler hands them out one after the other
    rates = replace(rates, task=rates.step / team.size)
    forms, cost = _planned(graph, loops, team.size, memory, rates)
    costs = {"planned": cost}
    usual = {kind: _chosen(graph, team.size, choose) for kind, choose in USUAL.items()}
    for kind, specs in usual.items():
        costs[kind] = _cost(graph, specs, team.size, rates, strict=False)
    named = {kind: [_symbolic(source, found) for found in specs] for kind, specs in usual.items()}
    found = _annotated(proto, name, team.size, [_symbolic(source, specs) for specs in forms], team, folder)
    return AnnotatedModel(found.model, found.graph, name, team.size, team, folder, costs=costs, specs=named)


def _annotated(
    proto: Any,
    name: str,
    num_devices: int,
    forms: Sequence[Mapping[str, TensorForm]],
    team: Team | None,
    folder: str | None,
) -> OnnxModel:
    """Return a model with a configuration of this name, in which nodes have these forms."""
    from distarray.io.onnx.protobuf import with_configuration

    specs = [{tensor: write_spec(form) for tensor, form in found.items()} for found in forms]
    return load(with_configuration(proto, name, num_devices, specs), name, team, folder=folder)


def _planned(
    graph: AnnotatedGraph, loops: LoopGraph, num_devices: int, memory: float | None, rates: Rates
) -> tuple[list[dict[str, TensorForm]], ModelCost]:
    """Return the forms of the plan of the largest limit of which they keep to the memory, and what they cost;
    MemoryBudgetError if they never do.
    """
    needed = ""
    for limit in LIMITS:
        allowed = None if memory is None or limit == inf else limit * memory
        try:
            found = plan(loops.graph, p=num_devices, memory_limit=allowed, rates=rates)
        except MemoryBudgetError as error:
            needed = str(error)
            break
        ways = [planned_forms(graph, loops, found, rates, is_repeated=again) for again in (False, True)]
        # what is small is not worth a message: every device computes everything
        ways.append([whole_inputs(graph, node, num_devices) for node in graph.nodes])
        costs = [_cost(graph, forms, num_devices, rates) for forms in ways]
        fitting = [i for i, cost in enumerate(costs) if memory is None or cost.peak_bytes <= memory]
        if fitting:
            best = min(fitting, key=lambda i: (costs[i].seconds, costs[i].nbytes))
            return ways[best], costs[best]
        needed = f"the last plan that was tried needs {min(cost.peak_bytes for cost in costs)} bytes on one"
    raise MemoryBudgetError(
        f"annotate: memory={memory} is too little on each of {num_devices} devices: {needed}; use more devices"
    )


def _inferred(
    graph: AnnotatedGraph, forms: Sequence[Mapping[str, TensorForm]], num_devices: int, *, strict: bool = True
) -> GraphInference:
    """Return what follows where nodes have these specs, and no others; OnnxShardingError if there is an error."""
    padded = [*forms, *[{}] * (len(graph.nodes) - len(forms))]
    nodes = []
    for node, specs in zip(graph.nodes, padded, strict=True):
        entry = NodeAnnotation("planned", tuple([(name, write_spec(form)) for name, form in specs.items()]))
        nodes.append(replace(node, annotations=(entry,) if specs else ()))
    alone = replace(graph, nodes=tuple(nodes), configurations=(("planned", num_devices, ()),), ir_version=11)
    done = infer_graph(alone, "planned", num_devices, strict=strict)
    raise_errors(done.violations)
    return done


def _cost(
    graph: AnnotatedGraph,
    forms: Sequence[Mapping[str, TensorForm]],
    num_devices: int,
    rates: Rates,
    *,
    strict: bool = True,
) -> ModelCost:
    return model_cost(graph, _inferred(graph, forms, num_devices, strict=strict), num_devices, rates)


def _symbolic(graph: AnnotatedGraph, forms: Mapping[str, TensorForm]) -> dict[str, TensorForm]:
    """Return forms with the symbols that stand for sizes, where an axis is cut as one."""
    return {name: form.with_shape(graph.shapes.get(name) or form.shape or ()) for name, form in forms.items()}
