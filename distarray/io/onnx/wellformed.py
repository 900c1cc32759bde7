"""Well-formed models: what is asked of a model before anything else is, whatever its annotations say.

Names are made once, and before they are read (W-1); operators are there and used as their schemas say (W-2); elements
are as many as shapes say, in the model or in a file of its folder (W-3); and functions end (W-4). The checker and
whoever runs a model ask here. Of files nothing but their size is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from distarray.io.onnx.function_calls import (
    call_key,
    check_functions,
    domain_of,
    opsets_of,
    own_functions,
    subgraphs,
)
from distarray.io.onnx.onnx_package import onnx
from distarray.io.onnx.violations import Refusal, Violation

#: Bytes of an initializer that is written down as a sparse one: as many as a file could have itself.
MAX_DENSE = 1 << 31
#: Subgraphs inside each other. A file has at most 100 messages so, three for each of them.
MAX_DEPTH = 24


class _Surroundings(NamedTuple):
    """_Surroundings are what is the same for all nodes of a graph or function: where names are seen, and which
    operators there are.
    """

    opsets: Mapping[str, int]
    functions: frozenset[tuple[str, str, str]]
    folder: str | None
    is_function: bool = False


def model_faults(model: Any, folder: str | None) -> list[Violation]:
    """Return all that keeps a ModelProto, which lies in a folder, from running: errors, and what is a warning because
    it can be judged all the same.
    """
    try:
        _check_texts(model)
        check_functions(model)
    except Refusal as refusal:
        return [_violation(refusal.finding)]
    opsets = opsets_of(model)
    functions = frozenset(own_functions(model))
    found = list(_graph_faults(model.graph, _Surroundings(opsets, functions, folder), (), 0))
    for body in model.functions:
        scope = _Surroundings(opsets | opsets_of(body), functions, folder, is_function=True)
        found += _node_faults(body, scope, [{*body.input}], 0)
    return found


def _check_texts(message: Any) -> None:
    """Raise a `Refusal` if a text of a message, or of one inside it, is none: protobuf gives bytes for it."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            values = [value] if hasattr(value, "ListFields") or isinstance(value, str | bytes) else value
            if field.type == field.TYPE_STRING and not all(isinstance(text, str) for text in values):
                text = f"{field.name} of {message.DESCRIPTOR.name} is no text: it is not encoded as UTF-8"
                raise Refusal("W-1", "name-malformed", text)
            if field.type == field.TYPE_MESSAGE:
                waiting += values


def external_elements(tensor: Any, folder: str | None, itemsize: int) -> tuple[str, int, int]:
    """Return where the elements of a tensor are that has them in another file: path, offset, and how many bytes.

    Raises
    ------
    Refusal
        If that is outside of the folder, or no file that is long enough, or nobody says in which folder.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    where, location = f"initializer {tensor.name!r}", entries.get("location", "")
    windows, posix = PureWindowsPath(location), PurePosixPath(location)
    is_outside = bool(windows.drive or windows.root or posix.root or ".." in (*windows.parts, *posix.parts))
    path = ""
    if folder is not None and not is_outside:
        root = os.path.realpath(folder)
        path = os.path.realpath(os.path.join(root, location))
        is_outside = os.path.commonpath([root, path]) != root  # a link leads out
    if is_outside:
        raise Refusal(
            "W-3", "data-outside", f"{where}: {location!r} is no file in the model's folder; nothing else is read"
        )
    nbytes = prod(tensor.dims) * itemsize
    try:
        offset, length = (int(entries.get(key) or n) for key, n in (("offset", 0), ("length", nbytes)))
    except ValueError:
        text = f"{where}: offset and length of {location!r} are no integers"
        raise Refusal("W-3", "data-malformed", text) from None
    if (itemsize and length != nbytes) or offset < 0:
        text = f"{where}: shape {tuple(tensor.dims)} needs {nbytes} bytes, but the model says {length} from {offset} on"
        raise Refusal("W-3", "data-malformed", text)
    if folder is None:
        raise Refusal("W-3", "not-runnable", f"{where} is in the file {location!r}: say folder=, that of the model")
    if not os.path.isfile(path) or offset + nbytes > os.path.getsize(path):
        text = f"{where}: {location!r} is no file in the model's folder that has {nbytes} bytes from byte {offset} on"
        raise Refusal("W-3", "not-runnable", text)
    return path, offset, nbytes


def _violation(fault: Violation, node: Any = None, name: str = "", tensors: Iterable[str] = ()) -> Violation:
    return fault.at(name, "" if node is None else node.op_type, tuple(filter(None, tensors)))


def _graph_faults(graph: Any, scope: _Surroundings, outer: Sequence[set[str]], depth: int) -> Iterator[Violation]:
    """Yield what is wrong with a graph, which sees the names of those around it."""
    made: set[str] = {value.name for value in graph.input}
    initial: set[str] = set()
    for tensor in (*graph.initializer, *graph.sparse_initializer):
        name = tensor.values.name if hasattr(tensor, "values") else tensor.name
        if name in initial:
            yield _violation(Violation("W-1", "duplicate-name", f"two initializers are {name!r}"), tensors=[name])
        initial.add(name)
        fault = _data_fault(tensor, scope.folder)
        if fault is not None:
            yield _violation(fault, tensors=[name])
    visible = [*outer, made | initial]
    yield from _node_faults(graph, scope, visible, depth)
    for value in graph.output:
        if not any(value.name in names for names in visible):
            text = f"the graph's output reads {value.name!r}, which no input, initializer or node of the model makes"
            yield _violation(Violation("W-1", "undefined-tensor", text), tensors=[value.name])


def _node_faults(body: Any, scope: _Surroundings, visible: list[set[str]], depth: int) -> Iterator[Violation]:
    """Yield what is wrong with the nodes of a graph or function, and put what they make into the last of `visible`."""
    later = {name for node in body.node for name in node.output}
    for number, node in enumerate(body.node):
        name = node.name or f"#{number}"
        for tensor in dict.fromkeys(filter(None, node.input)):
            if not any(tensor in names for names in visible):
                text = f"the node reads {tensor!r}, which no input, initializer or node of the model makes"
                if tensor in node.output:
                    text = f"the node reads what it makes itself, {tensor!r}"
                elif tensor in later:
                    text = f"the node reads {tensor!r} before it is made; the graph has a cycle, or is not in order"
                yield _violation(Violation("W-1", "undefined-tensor", text), node, name, [tensor])
        fault = _use_fault(node, scope)
        if fault is not None:
            yield _violation(fault, node, name, (*node.input, *node.output))
        inside = subgraphs(node)
        if inside and depth == MAX_DEPTH:
            text = f"graphs lie within each other more than {MAX_DEPTH} deep"
            yield _violation(Violation("W-4", "endless-model", text), node, name)
            inside = []
        for graph in inside:
            yield from _graph_faults(graph, scope, visible, depth + 1)
        for tensor in filter(None, node.output):
            if tensor in visible[-1]:
                text = f"the model makes {tensor!r} twice: names of a graph are given once"
                yield _violation(Violation("W-1", "duplicate-name", text), node, name, [tensor])
            visible[-1].add(tensor)


# -- operators --------------------------------------------------------------------------------------------------------


@cache
def _domains() -> frozenset[str]:
    """Return the domains of which ONNX knows all operators."""
    return frozenset([schema.domain for schema in onnx.defs.get_all_schemas()])


def _use_fault(node: Any, scope: _Surroundings) -> Violation | None:
    """Return what is wrong with the use of an operator: that there is none, or how many inputs and which attributes."""
    if call_key(node) in scope.functions:
        return None
    domain = domain_of(node.domain)
    version = scope.opsets.get(domain)
    if version is None:
        return Violation("W-2", "unknown-operator", f"the model imports no opset of the domain {domain or 'ai.onnx'!r}")
    if not onnx.defs.has(node.op_type, max_inclusive_version=version, domain=domain):
        text = f"opset {version} of {domain or 'ai.onnx'!r} has no such operator, and the model no such function"
        return Violation("W-2", "unknown-operator" if domain in _domains() else "not-runnable", text)
    if scope.is_function and any(attribute.ref_attr_name for attribute in node.attribute):
        return None  # what it is depends on the call
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.external_data:
            return Violation("W-3", "data-outside", f"{attribute.name!r} is in a file, which only initializers may be")
    if subgraphs(node):
        node = _without_graphs(node)
    return _said_by_onnx(onnx.checker.check_node, node, version, domain, "W-2", "node-malformed")


def _without_graphs(node: Any) -> Any:
    """Return a node whose subgraphs are empty: they are judged where the names are known that they see."""
    made = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            made.attribute.add(name=attribute.name, type=attribute.type, g=onnx.GraphProto(name="g"))
        else:
            made.attribute.append(attribute)
    return made


def _said_by_onnx(check: Any, proto: Any, version: int, domain: str, rule: str, code: str) -> Violation | None:
    """Return what ONNX's own checker says of a message; None if that is nothing."""
    checker = onnx.checker
    context = checker.C.CheckerContext()
    context.ir_version, context.opset_imports = checker.DEFAULT_CONTEXT.ir_version, {domain: version}
    try:
        check(proto, context)
    except checker.ValidationError as error:
        return Violation(rule, code, " ".join(str(error).partition("==> Context")[0].split()).rstrip("."))
    return None


# -- elements ---------------------------------------------------------------------------------------------------------


def _data_fault(tensor: Any, folder: str | None) -> Violation | None:
    """Return what is wrong with the elements of an initializer."""
    checker = onnx.checker
    if hasattr(tensor, "values"):
        n = prod(tensor.dims) * _itemsize(tensor.values)
        if not 0 <= n <= MAX_DENSE:
            text = f"sparse initializer {tensor.values.name!r} has {n} bytes when written out, of {MAX_DENSE} at most"
            return Violation("W-3", "data-malformed", text)
        return _said_by_onnx(checker.check_sparse_tensor, tensor, 1, "", "W-3", "data-malformed")
    if min(tensor.dims, default=0) < 0 or tensor.data_type not in onnx.TensorProto.DataType.values():
        text = f"initializer {tensor.name!r} has the shape {tuple(tensor.dims)} and the element type {tensor.data_type}"
        return Violation("W-3", "data-malformed", text)
    itemsize = _itemsize(tensor)
    if tensor.external_data or tensor.data_location == onnx.TensorProto.EXTERNAL:
        try:
            external_elements(tensor, folder, itemsize)
        except Refusal as refusal:
            return refusal.finding
        return None
    nbytes = prod(tensor.dims) * itemsize
    if not tensor.raw_data or not itemsize:
        return _said_by_onnx(checker.check_tensor, tensor, 1, "", "W-3", "data-malformed")
    if len(tensor.raw_data) == nbytes:
        return None
    text = (
        f"initializer {tensor.name!r} of shape {tuple(tensor.dims)} needs {nbytes} bytes and has {len(tensor.raw_data)}"
    )
    return Violation("W-3", "data-malformed", text)


@cache
def _itemsizes() -> dict[int, int]:
    """Return the bytes of an element of each type of which each has a whole number."""
    types = onnx.TensorProto.DataType.items()
    whole = [(n, element) for n, element in types if not n.endswith(("INT4", "INT2", "4E2M1", "STRING", "UNDEFINED"))]
    return {element: onnx.helper.tensor_dtype_to_np_dtype(element).itemsize for _, element in whole}


def _itemsize(tensor: Any) -> int:
    """Return the bytes of an element of a tensor; 0 where they are no whole number, or the type is none."""
    return _itemsizes().get(tensor.data_type, 0)
