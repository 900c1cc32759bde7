"""Graphs run node by node: names and where they are seen, subgraphs, functions, and when a value is let go.

Initializers are tensors in the model, or in files beside it, which tasks read where they need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from distarray.array.environment import environment
from distarray.expr.expr import Environment
from distarray.io.onnx.function_calls import call_key, opsets_of, own_functions, subgraphs
from distarray.io.onnx.onnx_package import onnx
from distarray.io.onnx.operators import (
    contractions,
    control_flow,
    creation,
    elementwise,
    movement,
    pooling,
    reductions,
)
from distarray.io.onnx.operators.call import (
    SMALL,
    NodeCall,
    Row,
    Value,
    array_of,
    attribute_value,
    dtype_of_element,
    is_host,
    tensor_value,
)
from distarray.io.onnx.operators.kernels import folded, node_proto, run_kernel, type_proto
from distarray.io.onnx.wellformed import external_elements

#: What each operator of ONNX is of this package. What is in no table runs as the function that its schema is, or by a
#: kernel of ``onnx.reference``.
ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **reductions.ROWS,
    **pooling.ROWS,
    **contractions.ROWS,
    **movement.ROWS,
    **creation.ROWS,
    **control_flow.ROWS,
}


def initial_value(tensor: Any, folder: str | None) -> tuple[str, Value]:
    """Return name and value of an initializer, which may be a map of a file.

    Raises
    ------
    NotSupportedError
        If numpy lacks its elements.
    ValueError
        If it is in a file that is none of the model's folder.
    """
    if isinstance(tensor, onnx.SparseTensorProto):
        name = tensor.values.name
        wrapped = onnx.AttributeProto(type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=tensor)
        return name, attribute_value(wrapped, f"initializer {name!r}")
    where = f"initializer {tensor.name!r}"
    is_external = onnx.external_data_helper.uses_external_data(tensor)
    return tensor.name, _external(tensor, folder, where) if is_external else tensor_value(tensor, where)


def _external(tensor: Any, folder: str | None, where: str) -> Any:
    """Return the elements of a file as a memory map, which arrays of this package read task by task."""
    dtype = dtype_of_element(tensor.data_type, where)
    path, offset, nbytes = external_elements(tensor, folder, dtype.itemsize)
    shape = tuple(tensor.dims)
    if not nbytes:
        return np.zeros(shape, dtype)
    mapped = np.memmap(path, dtype.newbyteorder("<"), "r", offset, shape)
    return np.array(mapped, dtype) if mapped.size <= SMALL else mapped


class Library:
    """A Library is what all graphs of a model share: its functions, and the folder of what lies beside it."""

    def __init__(self, model: Any = None, folder: str | None = None) -> None:
        self.folder = folder
        functions = {} if model is None else own_functions(model)
        self.functions = {key: PreparedGraph(body, self) for key, body in functions.items()}


class PreparedNode:
    """A PreparedNode is a node with its attributes as values, and the names that nobody reads after it.

    Attributes
    ----------
    references
        For an attribute that is the attribute of the function around it, the name of that.
    """

    def __init__(self, proto: Any, dying: list[str], library: Library) -> None:
        self.proto = proto
        self.dying = dying
        where = f"node {proto.name!r} ({proto.op_type})"
        self.references = {a.name: a.ref_attr_name for a in proto.attribute if a.ref_attr_name}
        values = {a.name: attribute_value(a, where) for a in proto.attribute if not a.ref_attr_name}
        # Only graphs have initializers.
        self.attributes = {k: PreparedGraph(v, library) if hasattr(v, "initializer") else v for k, v in values.items()}


class PreparedGraph:
    """A PreparedGraph is a graph or a function whose nodes stand in the order in which they run.

    It is made of a GraphProto or FunctionProto once, and may run often; what its initializers became is kept.
    """

    def __init__(self, proto: Any, library: Library) -> None:
        self.proto = proto
        self.library = library
        self.input = [getattr(i, "name", i) for i in proto.input]
        self.output = proto.output
        self.output_names = [getattr(o, "name", o) for o in proto.output]
        tensors = [*getattr(proto, "initializer", ()), *getattr(proto, "sparse_initializer", ())]
        self._initial = dict(initial_value(tensor, library.folder) for tensor in tensors)
        self._constants: dict[Environment, dict[str, Value]] = {}
        dying = _last_uses(proto.node, self.output_names)
        self.nodes = [PreparedNode(node, names, library) for node, names in zip(proto.node, dying, strict=True)]

    def constants(self) -> dict[str, Value]:
        """Return the initializers by name: host data if they are small, else arrays, made once in each environment."""
        env = environment()
        if env not in self._constants:
            self._constants[env] = {name: _settled(value) for name, value in self._initial.items()}
        return self._constants[env]


def _read_names(node: Any) -> Iterator[str]:
    """Return the names that a node reads, its subgraphs too where they do not give the name themselves."""
    waiting: list[tuple[Any, frozenset[str]]] = [(node, frozenset([""]))]
    while waiting:
        proto, given = waiting.pop()
        yield from (name for name in proto.input if name not in given)
        for graph in subgraphs(proto):
            made = (name for inner in graph.node for name in inner.output)
            own = given.union((v.name for v in (*graph.input, *graph.initializer)), made)
            yield from (output.name for output in graph.output if output.name not in own)
            waiting += [(inner, own) for inner in graph.node]


def _last_uses(nodes: Sequence[Any], outputs: Sequence[str]) -> list[list[str]]:
    """Return for each node the names that nobody reads after it. An array with a handle is stored, so none is to have
    one for longer than it is needed.
    """
    kept = {*outputs}
    dying: list[list[str]] = []
    for node in reversed(nodes):
        names = dict.fromkeys([*_read_names(node), *node.output])
        dying.append([name for name in names if name and name not in kept])
        kept.update(names)
    return dying[::-1]


class Scope:
    """A Scope is one run of a graph: its values by name, and the scope around it.

    Parameters
    ----------
    graph
        What runs.
    inputs
        Values of its inputs, in order; None for one that is left out.
    opsets
        Version of each domain.
    outer
        Where names are looked up that the graph does not have; None for a model or function.
    attributes
        Of the call of a function, which its nodes refer to.
    """

    def __init__(
        self,
        graph: PreparedGraph,
        inputs: Sequence[Value],
        opsets: Mapping[str, int],
        outer: Scope | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self.opsets = opsets
        self.outer = outer
        self.attributes = attributes or {}
        self.values: dict[str, Value] = dict(graph.constants())
        given = zip(graph.input, inputs)
        self.values |= {name: value for name, value in given if value is not None or name not in self.values}

    def look_up(self, name: str, where: str) -> Value:
        """Return the value of a name, here or further out.

        Raises
        ------
        ValueError
            If there is none; `where` says who reads it.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise ValueError(f"{where} reads {name!r}, which no input, initializer or node of the model makes")

    def run(self) -> list[Value]:
        """Run all nodes and return the outputs."""
        for node in self.graph.nodes:
            call = self._call(node)
            inputs = [self.look_up(name, str(call)) if name else None for name in node.proto.input]
            try:
                made = self.outputs_of(node, call, inputs)
            except Exception as error:
                error.add_note(f"at {call}")
                raise
            self.values.update((name, value) for name, value in zip(node.proto.output, made) if name)
            del inputs, made
            for name in node.dying:
                self.values.pop(name, None)
        return [self.look_up(name, "the graph's output") for name in self.graph.output_names]

    def outputs_of(self, node: PreparedNode, call: NodeCall, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Return the outputs of a node, for its inputs."""
        return evaluate(call, inputs)

    def inner(self, graph: PreparedGraph, inputs: Sequence[Value]) -> list[Value]:
        """Run a subgraph, which sees the names that are seen here."""
        return Scope(graph, inputs, self.opsets, self, self.attributes).run()

    def function(self, call: NodeCall, graph: PreparedGraph, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Run a function, which sees nothing but what it is given."""
        proto = graph.proto
        defaults = {a.name: attribute_value(a, str(call)) for a in proto.attribute_proto}
        opsets = {**self.opsets, **opsets_of(proto)}
        padded = [*inputs, *[None] * (len(graph.input) - len(inputs))]
        attributes = {**defaults, **call.defaults, **call.attributes}
        made = Scope(graph, padded, opsets, None, attributes)
        # An output that nobody wants may be one that the function does not make.
        made.values |= {name: None for name, wanted in zip_longest(graph.output_names, call.outputs) if not wanted}
        return tuple(made.run())

    def _call(self, node: PreparedNode) -> NodeCall:
        proto = node.proto
        referred = {name: self.attributes.get(of) for name, of in node.references.items()}
        attributes = {**node.attributes, **{name: value for name, value in referred.items() if value is not None}}
        domain, op_type, overload = call_key(proto)
        version = self.opsets.get(domain)
        if version is None:
            raise ValueError(
                f"node {proto.name!r} ({op_type}): the model imports no opset of the domain {proto.domain!r}"
            )
        return NodeCall(op_type, domain, attributes, version, self, proto.name, list(proto.output), overload)


# --------------------------------------------------------------------------------------------------- one operator


def evaluate(call: NodeCall, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Return the outputs of one operator: by a function of the model, by folding, by its row, by the function that
    its schema is, or by its kernel, whichever is there first.

    Raises
    ------
    ValueError
        If there is no such operator.
    """
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    if call.opset < 7 and not call.domain:
        given[1:2] = [v if v is None else _beside_first(call, given[0], v) for v in given[1:2]]
    scope: Scope = call.scope
    own = scope.graph.library.functions.get((call.domain, call.op_type, call.overload))
    if own is not None:
        return scope.function(call, own, given)
    if call.schema is None:
        raise ValueError(
            f"{call}: opset {call.opset} of the domain {call.domain or 'ai.onnx'!r} has no such operator, and the "
            "model no such function"
        )
    try:
        made = folded(call, given)
        return _made(call, given) if made is None else made
    except ZeroDivisionError:
        raise ValueError(f"{call}: an attribute is zero that its inputs are divided by") from None


def _beside_first(call: NodeCall, x: Value, y: Value) -> Value:
    """Return a second operand as it broadcasts to the first: before opset 7 it may begin at any axis of that."""
    axis = call["axis"] if call["broadcast"] else 1 if call.op_type == "PRelu" and y.ndim == 1 else None
    return y if axis is None else y.reshape((*y.shape, *(1,) * (x.ndim - axis % x.ndim - y.ndim)))


def _made(call: NodeCall, given: Sequence[Value]) -> tuple[Value, ...]:
    """Return the outputs of an operator that ONNX has, whose inputs are not all known."""
    row = ROWS.get(call.op_type) if not call.domain else None
    made: Any = NotImplemented if row is None else row(call, *given)
    if made is NotImplemented:
        body = _schema_function(call, given)
        scope: Scope = call.scope
        made = run_kernel(call, given) if body is None else scope.function(call, PreparedGraph(body, Library()), given)
    made = made if isinstance(made, tuple) else (made,)
    return tuple(_settled(value) for value in made[: len(call.outputs)])


def _settled(value: Value) -> Value:
    """Return a result as a value: what is large is an array of the package."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    return array_of(value) if is_host(value) and value.size > SMALL else value


def _schema_function(call: NodeCall, inputs: Sequence[Value]) -> Any:
    """Return the function that the schema of an operator says it is, for these inputs; None if it says none."""
    schema = call.schema
    plain = [v for v in schema.function_opset_versions if v <= call.opset]
    if plain:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(plain)))
    of_context = [v for v in schema.context_dependent_function_opset_versions if v <= call.opset]
    if not of_context or any(isinstance(v, list) for v in inputs):
        return None
    types = [onnx.TypeProto() if v is None else type_proto(v) for v in inputs]
    node = node_proto(call, inputs).SerializeToString()
    made = schema.get_context_dependent_function_with_opset_version(
        max(of_context), node, [t.SerializeToString() for t in types]
    )
    return onnx.FunctionProto.FromString(made) if made else None
