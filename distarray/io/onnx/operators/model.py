"""Models and single nodes as expressions of this package: what callers call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from typing import Any

import numpy as np

from distarray.arguments import mapping
from distarray.array.array import DistArray
from distarray.array.environment import within
from distarray.array.namespace import namespace
from distarray.expr.bind import check_mask
from distarray.expr.lens import Reshape
from distarray.io.onnx.function_calls import domain_of, opsets_of
from distarray.io.onnx.onnx_package import onnx
from distarray.io.onnx.operators.call import NodeCall, Value, array_of, attribute_value, dtype_of_element
from distarray.io.onnx.operators.graph import Library, PreparedGraph, Scope, evaluate
from distarray.io.onnx.protobuf import read_graph
from distarray.io.onnx.violations import raise_errors


def run_node(
    op_type: str,
    domain: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Value],
    opset: int,
    outputs: int | Sequence[str] = 1,
    *,
    name: str = "",
) -> tuple[DistArray | None, ...]:
    """Apply one operator of ONNX.

    Parameters
    ----------
    op_type, domain
        The operator, such as ``"MatMul"`` of ``""``.
    attributes
        By name: numbers, text, lists, host arrays, or AttributeProtos.
    inputs
        DistArrays, host arrays, lists of them (sequences), and None for what is left out.
    opset
        Version of the domain.
    outputs
        Their number, or a name each; one without a name is not wanted.
    name
        Of the node, for errors.

    Returns
    -------
    tuple of DistArray, list, or None
        Deferred, unless shapes depend on values; None for what is not wanted.

    Raises
    ------
    NotSupportedError
        If numpy lacks elements of a type that is asked for.
    ValueError
        If there is no such operator, or it refuses its inputs.
    """
    wanted = [f"output {i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    where = f"node {name!r} ({op_type})"
    protos = onnx.AttributeProto
    library = Library()
    given = {key: attribute_value(v, where) if isinstance(v, protos) else v for key, v in attributes.items()}
    given = {key: PreparedGraph(v, library) if hasattr(v, "initializer") else v for key, v in given.items()}
    opsets = {domain_of(domain): opset}
    scope = Scope(PreparedGraph(onnx.GraphProto(), library), (), opsets)
    made = evaluate(NodeCall(op_type, domain, given, opset, scope, name, wanted), inputs)
    return tuple(_boxed(value) if output else None for output, value in zip(wanted, made))


def _boxed(value: Value) -> Any:
    """Return a value as the caller gets it: writing into it changes no input, of which it may be a view."""
    if value is None:
        return None
    return [_boxed(v) for v in value] if isinstance(value, list) else _apart(array_of(value))


def _apart(x: DistArray) -> DistArray:
    """Return an array that is no view of another one; the axes of its storage stay apart where those of it are."""
    if len(x._lens) == 1 and isinstance(x._lens[0], Reshape):
        made: DistArray = namespace().reshape(copy(DistArray._on(x._base.current)), x.shape)
        return made
    return copy(x)


class PlainModel:
    """A PlainModel is a model that runs as it stands, without regard to annotations, as often as one likes.

    Its initializers are sent to the members of a team once.

    Parameters
    ----------
    model, folder
        See `run_graph`.

    Raises
    ------
    NotSupportedError
        If the model has elements of a type that numpy lacks; names where.
    OnnxShardingError
        If it is not well-formed, or has operators or data that are not there.
    TypeError
        If it is no ModelProto.
    """

    def __init__(self, model: Any, folder: str | None = None) -> None:
        if not isinstance(model, onnx.ModelProto):
            raise TypeError(f"{type(model).__name__} is no ModelProto; onnx.load(path) gives the one in a file")
        raise_errors(read_graph(model, folder=folder).faults, is_run=True)
        self.graph = PreparedGraph(model.graph, Library(model, folder))
        self.opsets = opsets_of(model)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model; see `run_graph`."""
        feeds = mapping(feeds, "feeds", "names of inputs to arrays")
        first = next((v for v in feeds.values() if isinstance(v, DistArray)), None)
        with nullcontext() if first is None else within(first._env):
            return self.run_in(Scope, self.checked(feeds))

    def checked(self, feeds: Mapping[str, Any]) -> dict[str, Value]:
        """Return the values of the inputs in the environment that is current; raises where they are none."""
        return _checked(self.graph.proto, feeds)

    def run_in(self, scope: Callable[..., Scope], given: Mapping[str, Value]) -> dict[str, Any]:
        """Run the model with inputs that are checked, in a scope of some kind."""
        made = scope(self.graph, [given.get(name) for name in self.graph.input], self.opsets).run()
        return {name: _boxed(value) for name, value in zip(self.graph.output_names, made, strict=True)}


def run_graph(model: Any, feeds: Mapping[str, Any], *, folder: str | None = None) -> dict[str, Any]:
    """Run a model once; a `PlainModel` runs it often.

    Parameters
    ----------
    model
        A ModelProto.
    feeds
        A DistArray or host array for each input of the model; those with an initializer may be left out. A list for a
        sequence, None for an optional without a value.
    folder
        Where the model lies, if it has elements in other files. Only files in it are read.

    Returns
    -------
    dict of str to DistArray
        The outputs by name, deferred unless shapes depend on values; a list for a sequence, None for an optional
        without a value. They live where the first DistArray of the feeds does.

    Raises
    ------
    NotSupportedError
        If the model has elements of a type that numpy lacks; names where.
    TypeError
        If an input has another dtype.
    ValueError
        If inputs are missing or unknown, or of another shape, or the model is malformed.
    """
    return PlainModel(model, folder).run(feeds)


# ------------------------------------------------------------------------------------------------------- feeds


def _checked(graph: Any, feeds: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of the inputs of a graph, checked against what it says of them."""
    initial = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    kinds = {info.name: info.type for info in graph.input}
    unknown = [name for name in feeds if name not in kinds]
    if unknown:
        raise ValueError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(kinds) or 'none'}")
    missing = [n for n, k in kinds.items() if n not in feeds and n not in initial and not k.HasField("optional_type")]
    if missing:
        raise ValueError(f"the model's input {missing[0]!r} is not given; its inputs are {', '.join(kinds)}")
    bound: dict[str, tuple[int, str]] = {}
    return {name: _fed(value, kinds[name], f"input {name!r}", bound) for name, value in feeds.items()}


def _fed(value: Any, kind: Any, where: str, bound: dict[str, tuple[int, str]]) -> Value:
    if kind.HasField("optional_type"):
        return None if value is None else _fed(value, kind.optional_type.elem_type, where, bound)
    if kind.HasField("sequence_type"):
        if not isinstance(value, list | tuple):
            raise TypeError(f"{where} is a sequence: give a list of arrays, not {type(value).__name__}")
        # Elements may differ in what a symbol stands for.
        return [_fed(v, kind.sequence_type.elem_type, f"{where}[{i}]", {}) for i, v in enumerate(value)]
    tensor = kind.tensor_type
    wanted = dtype_of_element(tensor.elem_type, where)
    check_mask(value, where)
    x = value if isinstance(value, DistArray) else np.asarray(value)
    if x.dtype != wanted:
        raise TypeError(f"{where} has dtype {x.dtype}, but the model takes {wanted}; x.astype({wanted.name!r}) casts")
    if tensor.HasField("shape"):
        _check_shape(x.shape, tensor.shape.dim, where, bound)
    return array_of(x)


def _check_shape(shape: tuple[int, ...], dims: Any, where: str, bound: dict[str, tuple[int, str]]) -> None:
    text = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims)
    if len(shape) != len(dims):
        raise ValueError(f"{where} has shape {shape}, but the model takes ({text}): {len(dims)} axes, not {len(shape)}")
    for axis, (n, d) in enumerate(zip(shape, dims)):
        if d.HasField("dim_value"):
            if n != d.dim_value:
                raise ValueError(f"{where} has shape {shape}, but the model takes ({text}): axis {axis} is {n} long")
        elif d.dim_param:
            known, by = bound.setdefault(d.dim_param, (n, f"axis {axis} of {where}"))
            if known != n:
                raise ValueError(
                    f"{where} has shape {shape}, but the model takes ({text}), and {d.dim_param} is {known} by {by}"
                )
