"""What this package has no operations for runs by the kernels of ``onnx.reference``, which are NumPy's.

Where ONNX's shape inference knows the results, a kernel is one deferred operation on the whole of its operands, or on
each part of a batch; else it is computed here at once. Host data alone are folded by the same kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from distarray.array.array import DistArray
from distarray.errors import NotSupportedError
from distarray.expr.bind import bind, unbox
from distarray.expr.expr import ITEM
from distarray.expr.op import declare
from distarray.expr.params import ItemParams
from distarray.io.onnx.onnx_package import onnx
from distarray.io.onnx.operators.call import (
    SMALL,
    NodeCall,
    Value,
    dtype_of_element,
    host,
    is_host,
)
from distarray.types import DType, HostArray, Shape

#: params: (rule, dtypes of the results); late: (the kernel,). Shapes and dtypes were inferred: it has no cause to fail.
REFERENCE = declare("reference_kernel", "block")

#: Operators that make each batch of their one output of the same batch of some inputs, and which these are: along
#: axis 0 of all of them the work may be cut.
_BATCHED = {
    **dict.fromkeys("BitCast Conv ConvInteger ConvTranspose QLinearConv".split(), (0,)),
    "DeformConv": (0, 2, 4),
    "GridSample": (0, 1),
}
#: Operators whose results differ from call to call.
_RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)

_Types: TypeAlias = list[tuple[Shape, DType]]


def node_proto(call: NodeCall, inputs: Sequence[Value]) -> Any:
    """Return the node as a NodeProto whose inputs are ``i0``, ``i1`` ... and whose outputs are ``o0`` ..."""
    names_in = ["" if v is None else f"i{k}" for k, v in enumerate(inputs)]
    wanted = [f"o{k}" if name or not k else "" for k, name in enumerate(call.outputs)]
    node = onnx.helper.make_node(call.op_type, names_in, wanted, call.name, domain=call.domain)
    schema = call.schema
    for name, value in call.attributes.items():
        known = schema.attributes.get(name) if schema is not None else None
        value = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else getattr(value, "proto", value)
        kind = None if known is None else int(known.type.value)
        node.attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))
    return node


def type_proto(value: Value, with_shape: bool = True) -> Any:
    """Return the TypeProto of a value."""
    helper = onnx.helper
    if isinstance(value, list):
        inside = type_proto(value[0], False) if value else helper.make_tensor_type_proto(1, None)
        return helper.make_sequence_type_proto(inside)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_type_proto(element, value.shape if with_shape else None)


def _inferred(call: NodeCall, inputs: Sequence[Value]) -> _Types | None:
    """Return shape and dtype of each output, or None if one cannot be told without computing."""
    schema = call.schema
    if schema is None or any(isinstance(v, list) for v in inputs):
        return None
    given = {f"i{k}": v for k, v in enumerate(inputs) if v is not None}
    known = {name: onnx.numpy_helper.from_array(v, name) for name, v in given.items() if is_host(v)}
    types = {name: type_proto(v) for name, v in given.items()}
    opsets = [onnx.helper.make_opsetid(call.domain, call.opset)]
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node_proto(call, inputs), types, known, opset_imports=opsets
        )
    except onnx.shape_inference.InferenceError:  # stricter than the kernels, which say themselves what is wrong
        return None
    results: _Types = []
    for k in range(len(call.outputs)):
        kind = found.get(f"o{k}")
        if kind is None:
            if k and not call.outputs[k]:
                continue
            return None
        tensor = kind.tensor_type
        extents = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        if not tensor.elem_type or not tensor.HasField("shape") or -1 in extents:
            return None
        results.append((tuple(extents), dtype_of_element(tensor.elem_type, f"{call}, output {k}")))
    return results


# ----------------------------------------------------------------------------------------------------- the kernel


@lru_cache(maxsize=256)
def _evaluator(model: bytes) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(onnx.ModelProto.FromString(model))


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceKernel:
    """A ReferenceKernel is one node of a model as a function of the blocks of its inputs.

    Parameters
    ----------
    model
        A serialized model of this one node.
    fixed
        Inputs that are known, by name.
    names
        Of the inputs that blocks are given for, in order.
    """

    model: bytes
    fixed: dict[str, Any]
    names: tuple[str, ...]

    def __call__(self, *blocks: Any) -> Any:
        """Return the outputs."""
        given = self.fixed | dict(zip(self.names, blocks, strict=True))
        # Some kernels write into what they are given.
        feeds = {name: v if isinstance(v, list) else np.array(v) for name, v in given.items()}
        made = _evaluator(self.model).run(None, feeds)
        return made[0] if len(made) == 1 else tuple(made)

    def __repr__(self) -> str:
        node = onnx.ModelProto.FromString(self.model).graph.node[0]
        return str(node.op_type)


def _kernel(call: NodeCall, inputs: Sequence[Value], fixed: dict[str, Any], names: Sequence[str]) -> ReferenceKernel:
    node = node_proto(call, inputs)
    # Any shape: parts of a batch have the batch's extent by themselves.
    typed = [onnx.helper.make_value_info(f"i{k}", type_proto(v, False)) for k, v in enumerate(inputs) if v is not None]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", typed, outputs)
    opsets = [onnx.helper.make_opsetid(call.domain, call.opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets).SerializeToString()
    try:
        _evaluator(model)
    except NotImplementedError:
        raise NotSupportedError(f"{call}: onnx.reference has no kernel for it, nor has this package") from None
    return ReferenceKernel(model, fixed, tuple(names))


def folded(call: NodeCall, inputs: Sequence[Value]) -> tuple[HostArray | None, ...] | None:
    """Return the outputs of an operator on small host data, if they are small host data too; else None."""
    given = [v for v in inputs if v is not None]
    if not given or call.op_type in _RANDOM or call.has_subgraphs or call.schema is None:
        return None
    if not all(is_host(v) and v.size <= SMALL for v in given):
        return None
    types = _inferred(call, inputs)
    if types is None or any(math.prod(shape) > SMALL for shape, _ in types):
        return None
    fixed = {f"i{k}": v for k, v in enumerate(inputs) if v is not None}
    try:
        made = _kernel(call, inputs, fixed, ())()
    except Exception:  # what the row can do, or says itself is wrong
        return None
    made = made if isinstance(made, tuple) else (made,)
    return _placed(call, [np.asarray(v, dtype) for v, (_, dtype) in zip(made, types, strict=True)])


def run_kernel(call: NodeCall, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Return the outputs of an operator by its kernel of ``onnx.reference``: deferred, where their types are known.

    Raises
    ------
    NotSupportedError
        If an output has elements that numpy lacks.
    """
    types = _inferred(call, inputs)
    arrays = {} if types is None else {k: v for k, v in enumerate(inputs) if isinstance(v, DistArray)}
    fixed = {f"i{k}": [host(e) for e in v] if isinstance(v, list) else host(v)
             for k, v in enumerate(inputs) if v is not None and k not in arrays}  # fmt: skip
    kernel = _kernel(call, inputs, fixed, [f"i{k}" for k in arrays])
    if types is not None and arrays:
        return _placed(call, deferred(call.op_type, kernel, arrays, types))
    made = kernel()
    return _placed(call, made if isinstance(made, tuple) else (made,))


def deferred(op_type: str, kernel: Any, arrays: dict[int, DistArray], types: _Types) -> list[DistArray]:
    """Return the results of a kernel as one operation.

    Parameters
    ----------
    op_type
        The operator.
    kernel
        Takes blocks, and returns one or a tuple of them; it must be possible to pickle it.
    arrays
        By the numbers of the inputs that they are.
    types
        Shape and dtype of each result.
    """
    operands = unbox(op_type, [*arrays.values()])
    if operands.env.device != "cpu":  # the kernels are NumPy's
        there = {k: x.to_device("cpu") for k, x in arrays.items()}
        return [x.to_device(operands.env.device) for x in deferred(op_type, kernel, there, types)]
    params = (_rule(op_type, {k: x.shape for k, x in arrays.items()}, types), *(dtype.str for _, dtype in types))
    if len(types) == 1:
        ((shape, dtype),) = types
        return [bind(REFERENCE, (), shape, dtype, params, (kernel,), operands)]
    shapes, dtypes = tuple(s for s, _ in types), tuple(d for _, d in types)
    box, operands.box = operands.box, lambda node: node
    made = bind(REFERENCE, (), shapes, dtypes, params, (kernel,), operands)
    return [box(bind(ITEM, (made,), s, d, ItemParams(k))) for k, (s, d) in enumerate(types)]


def _rule(op_type: str, shapes: dict[int, Shape], types: _Types) -> str:
    """Return the ShardingRule of a kernel: all axes are whole, or all but the batch."""
    terms = {k: [f"c{k}x{a}" for a in range(len(shape))] for k, shape in shapes.items()}
    results = [[f"n{k}x{a}" for a in range(len(shape))] for k, (shape, _) in enumerate(types)]
    batched = _BATCHED.get(op_type, ())
    first = {shapes[k][:1] for k in batched if k in shapes} | {shape[:1] for shape, _ in types}
    if batched and 0 in shapes and len(types) == 1 and len(first) == 1 and () not in first:
        for term in (*(terms[k] for k in batched if k in terms), results[0]):
            term[0] = "b"
    clauses = [f"{name}: whole" for term in terms.values() for name in term if name != "b"]
    new = [(name, n) for term, (shape, _) in zip(results, types) for name, n in zip(term, shape)]
    clauses += [f"{name}: new({n})" for name, n in new if name != "b"]
    sides = [", ".join(" ".join(term) or "()" for term in side) for side in (terms.values(), results)]
    return " -> ".join(sides) + (" | " + ", ".join(clauses) if clauses else "")


def _placed(call: NodeCall, made: Sequence[Value]) -> tuple[Value, ...]:
    """Return the results of a kernel in the places of the outputs that are wanted."""
    results = iter(made)
    return tuple(next(results) if name or not k else None for k, name in enumerate(call.outputs))
