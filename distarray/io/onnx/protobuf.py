"""The protobuf of ONNX: files and messages read into annotated graphs, and specs written back.

Files are not trusted: they are read once, without their external data, and of a model that is not well-formed nothing
is read but what is wrong with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from distarray.arguments import shown
from distarray.io.onnx.forms import Size
from distarray.io.onnx.function_calls import call_key, nodes_of, subgraphs
from distarray.io.onnx.graph import AnnotatedGraph, AnnotatedNode, NodeAnnotation
from distarray.io.onnx.onnx_package import onnx
from distarray.io.onnx.operator_classes import OPERATORS
from distarray.io.onnx.specs import JsonSpec
from distarray.io.onnx.violations import Violation, has_errors
from distarray.io.onnx.wellformed import model_faults
from distarray.types import HostArray

#: Inputs that rules ask for by name where they are constant.
CONSTANTS = frozenset(
    "axes axis shape k K pads split repeats starts ends steps sizes scales depth size start limit delta input".split()
)
#: The attributes of Constant that say numbers and are no tensors, and the dtypes of these.
CONSTANT_DTYPES = MappingProxyType(
    {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
)
#: Elements of a constant that is read: axes and shapes are short.
MAX_CONSTANT = 1024


def read_model(path_or_proto: Any) -> Any:
    """Return the ModelProto of a path, or a ModelProto as it is. External data are not read.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If the file is no model.
    """
    if isinstance(path_or_proto, onnx.ModelProto):
        return path_or_proto
    if not isinstance(path_or_proto, str | os.PathLike):
        raise TypeError(f"{shown(path_or_proto)} is neither a path nor an onnx.ModelProto")
    data = Path(path_or_proto).read_bytes()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own errors differ from version to version
        raise ValueError(f"{path_or_proto} is no ONNX model, or only a part of one: {error}") from None
    if not model.HasField("graph"):
        raise ValueError(f"{path_or_proto} is no ONNX model: there is no graph in it")
    return model


def folder_of(path_or_proto: Any) -> str | None:
    """Return the folder of a path; None of a ModelProto."""
    is_path = isinstance(path_or_proto, str | os.PathLike)
    return os.path.dirname(os.path.abspath(path_or_proto)) if is_path else None


class KnownInputs(NamedTuple):
    """KnownInputs are what is known of the inputs of a model before it runs.

    Parameters
    ----------
    shapes
        By name.
    constants
        Those that are lists of a few numbers on the host, which may be axes and shapes.
    """

    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    constants: Mapping[str, HostArray] = MappingProxyType({})


def known_of(feeds: Mapping[str, Any]) -> KnownInputs:
    """Return what is known of inputs that are given, or of which the shapes are given."""
    shapes = {name: tuple(x.shape if hasattr(x, "shape") else x) for name, x in feeds.items()}
    hosts = {name: np.asarray(x) for name, x in feeds.items() if isinstance(x, np.ndarray | np.generic)}
    short = {name: x for name, x in hosts.items() if x.ndim < 2 and x.size <= MAX_CONSTANT and x.dtype.kind in "iuf"}
    return KnownInputs(shapes, short)


def read_graph(model: Any, known: KnownInputs | None = None, folder: str | None = None) -> AnnotatedGraph:
    """Return what a ModelProto, which lies in a folder, says about shardings; `known`: of its inputs."""
    configurations = tuple(
        (
            entry.name if entry.HasField("name") else None,
            entry.num_devices if entry.HasField("num_devices") else None,
            tuple(entry.device),
        )
        for entry in model.configuration
    )
    faults = model_faults(model, folder)
    if has_errors(faults):
        return AnnotatedGraph((), {}, frozenset(), configurations, model.ir_version, faults=tuple(faults))
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    known = known or KnownInputs()
    constants |= {name: onnx.numpy_helper.from_array(x, name) for name, x in known.constants.items()}
    sparse = {tensor.values.name: tuple(tensor.dims) for tensor in graph.sparse_initializer}
    inputs = frozenset([*(value.name for value in graph.input), *constants, *sparse])
    nodes = []
    for i, node in enumerate(graph.node):
        nodes.append(_node(node, node.name or f"#{i}", constants))
        if (constant := _made_constant(node)) is not None:
            constants[node.output[0]] = constant
    shapes, itemsizes, differing = _types(model, constants, known.shapes)
    initial = frozenset([tensor.name for tensor in graph.initializer] + [*sparse])
    return AnnotatedGraph(
        tuple(nodes),
        {**sparse, **shapes},
        inputs,
        configurations,
        model.ir_version,
        itemsizes,
        initial,
        (*faults, *differing),
    )


def _node(node: Any, name: str, constants: Mapping[str, Any]) -> AnnotatedNode:
    is_own = node.domain in ("", "ai.onnx")
    op_type = node.op_type if is_own else f"{node.domain}::{node.op_type}"
    attrs: dict[str, Any] = {}
    inside = any(inner.device_configurations for graph in subgraphs(node) for inner in nodes_of(graph))
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            attrs[attribute.name] = _NestedShape(attribute.t.dims)
        elif attribute.type in _PLAIN_TYPES:
            value = onnx.helper.get_attribute_value(attribute)
            attrs[attribute.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    row = OPERATORS.get(op_type)
    for key, tensor in zip(row.inputs if row else (), node.input):
        if key in CONSTANTS and tensor in constants and (value := _constant(constants[tensor])) is not None:
            attrs.setdefault(key, value)
    entries = tuple(
        NodeAnnotation(
            entry.configuration_id,
            tuple((spec.tensor_name, spec_from_proto(spec)) for spec in entry.sharding_spec),
            entry.pipeline_stage if entry.HasField("pipeline_stage") else None,
        )
        for entry in node.device_configurations
    )
    return AnnotatedNode(name, op_type, attrs, tuple(node.input), tuple(node.output), entries, inside)


_PLAIN_TYPES = frozenset(
    getattr(onnx.AttributeProto, name) for name in ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
)


class _NestedShape:
    """A _NestedShape is a value of which only the shape is known: what `numpy.shape` asks of it."""

    def __init__(self, dims: Sequence[int]) -> None:
        self.shape = tuple(dims)


def _made_constant(node: Any) -> Any:
    """Return what a node Constant makes as a tensor; None of any other node, and of texts."""
    if call_key(node)[:2] != ("", "Constant"):
        return None
    for attribute in node.attribute:
        if attribute.name == "value":
            return attribute.t
        if attribute.name in CONSTANT_DTYPES and not attribute.ref_attr_name:
            value = onnx.helper.get_attribute_value(attribute)
            return onnx.numpy_helper.from_array(np.asarray(value, CONSTANT_DTYPES[attribute.name]))
    return None


def _constant(tensor: Any) -> list[Any] | None:
    """Return the elements of a small constant; None if it is large or its data are elsewhere."""
    if not 0 <= prod(tensor.dims) <= MAX_CONSTANT or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        values: list[Any] = onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
    except Exception:  # what is wrong with the data of a tensor is not what is asked here
        return None
    return values


def _types(
    model: Any, constants: Mapping[str, Any], bound: Mapping[str, Sequence[int]]
) -> tuple[dict[str, tuple[Size, ...] | None], dict[str, int], list[Violation]]:
    """Return shapes of tensors, and the bytes of their elements: what stands in the model, and what onnx infers; and
    where types differ.
    """
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = light.graph
    graph.name = "shapes"
    graph.node.extend(model.graph.node)
    for i, node in enumerate(graph.node):
        node.name = node.name or f"#{i}"
    for values in ("input", "output", "value_info"):
        getattr(graph, values).extend(getattr(model.graph, values))
    for value in graph.input:
        if value.name in bound and value.type.HasField("tensor_type"):
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for n in bound[value.name]:
                shape.dim.add(dim_value=n)
    named = {value.name for value in graph.input}
    for tensor in model.graph.initializer:  # large ones are inputs: their data are not copied
        if _constant(tensor) is not None:
            graph.initializer.append(tensor)
        elif tensor.name not in named:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    differing = []
    try:
        graph = onnx.shape_inference.infer_shapes(light, check_type=True, data_prop=True).graph
    except onnx.shape_inference.InferenceError as error:
        differing = [_difference(" ".join(str(error).split()))]
    except Exception:  # an input without a type, say: shapes that are not known are said where they are needed
        pass
    found: dict[str, tuple[Size, ...] | None] = {name: tuple(tensor.dims) for name, tensor in constants.items()}
    elements = {name: tensor.data_type for name, tensor in constants.items()}
    for value in (*graph.input, *graph.output, *graph.value_info):
        elements.setdefault(value.name, value.type.tensor_type.elem_type)
        if value.name not in found and value.type.tensor_type.HasField("shape"):
            found[value.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
                for dim in value.type.tensor_type.shape.dim
            )
    return found, {name: _itemsize(element) for name, element in elements.items()}, differing


def _difference(said: str) -> Violation:
    """Return what onnx says of types that differ, at the node that it names."""
    found = re.search(r"\(op_type:(\w*)(?:, node name: (.*?))?\): (.*)", said)
    op_type, name, text = found.groups() if found else ("", "", said)
    return Violation("W-2", "types-differ", text, name or "", op_type)


def _itemsize(element: int) -> int:
    """Return the bytes of an element, or of the type that stands for it in numpy; 0 where nobody knows."""
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(element).itemsize)
    except KeyError:
        return 0


def spec_from_proto(proto: Any) -> dict[str, Any]:
    """Return a ShardingSpecProto in its JSON form; nothing is judged."""
    sharded = []
    for dim in proto.sharded_dim:
        shards = []
        for simple in dim.simple_sharding:
            entry: dict[str, Any] = {}
            which = simple.WhichOneof("dim")
            if which:
                entry["dim"] = getattr(simple, which)
            if simple.HasField("num_shards"):
                entry["num_shards"] = simple.num_shards
            shards.append(entry)
        sharded.append({"axis": dim.axis, "shards": shards})
    groups = [[group.key, list(group.value)] for group in proto.index_to_device_group_map]
    return {"device": list(proto.device), "groups": groups, "sharded": sharded}


def spec_to_proto(spec: JsonSpec, tensor_name: str) -> Any:
    """Return a spec in JSON form as a ShardingSpecProto."""
    proto = onnx.ShardingSpecProto(tensor_name=tensor_name, device=spec["device"])
    for key, members in spec["groups"]:
        proto.index_to_device_group_map.add(key=key, value=members)
    for dim in spec["sharded"]:
        sharded = proto.sharded_dim.add(axis=dim["axis"])
        for entry in dim["shards"]:
            simple = sharded.simple_sharding.add()
            if "num_shards" in entry:
                simple.num_shards = entry["num_shards"]
            if isinstance(entry.get("dim"), str):
                simple.dim_param = entry["dim"]
            elif "dim" in entry:
                simple.dim_value = entry["dim"]
    return proto


def with_specs(model: Any, configuration: str, specs: Sequence[Mapping[str, JsonSpec] | None]) -> Any:
    """Return a copy of a model whose nodes have these specs for a configuration; None leaves a node as it is."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node, found in zip(copy.graph.node, specs, strict=True):
        if found is None:
            continue
        mine = [entry for entry in node.device_configurations if entry.configuration_id == configuration]
        entry = mine[0] if mine else node.device_configurations.add(configuration_id=configuration)
        del entry.sharding_spec[:]
        entry.sharding_spec.extend([spec_to_proto(spec, tensor) for tensor, spec in found.items()])
    return copy


def with_configuration(model: Any, name: str, num_devices: int, specs: Sequence[Mapping[str, JsonSpec]]) -> Any:
    """Return a copy of a model with one more configuration, in place of one of this name, and specs of its nodes for
    it.

    Parameters
    ----------
    specs
        Per node; where they are none, as many nodes as are left have none.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, 11)
    for entries in (copy.configuration, *(node.device_configurations for node in copy.graph.node)):
        names = [getattr(entry, "configuration_id", None) or getattr(entry, "name", None) for entry in entries]
        for at in reversed([i for i, known in enumerate(names) if known == name]):
            del entries[at]
    copy.configuration.add(name=name, num_devices=num_devices)
    padded = [*[found or None for found in specs], *[None] * (len(copy.graph.node) - len(specs))]
    return with_specs(copy, name, padded)
