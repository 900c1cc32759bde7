"""One application of an ONNX operator: what rows of the tables are called with.

A value is a DistArray, host data that is known without running anything (`Host`), a list (a sequence, or an optional
that has a value), or None (an optional without one, an input that is left out).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from distarray.array.array import DistArray
from distarray.array.namespace import namespace
from distarray.dtypes import as_dtype
from distarray.errors import NotSupportedError
from distarray.io.onnx.function_calls import domain_of
from distarray.io.onnx.onnx_package import onnx
from distarray.types import DType, HostArray

#: Elements up to which host data stay host data: shapes, axes, scalars, and what follows from them.
SMALL = 1024

Value: TypeAlias = Any  # DistArray | HostArray | list | None: a recursive union helps no reader
#: A row of the tables: from the call and its inputs, as far as they are given, to an output or a tuple of them.
Row: TypeAlias = Callable[..., Any]

#: The element types that numpy has, in ONNX's names.
_ELEMENTS = "FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128".split()


@dataclass(slots=True, eq=False)
class NodeCall:
    """A NodeCall says how an operator is applied: its name, opset, attributes, and which of its outputs are wanted.

    Parameters
    ----------
    op_type, domain
        The operator.
    attributes
        By name, as `attribute_value` gives them; those that are not given have the schema's defaults.
    opset
        Version of the domain.
    scope
        Where the names of subgraphs are looked up, and functions.
    name
        Of the node, for errors.
    outputs
        Names of the outputs; an empty one is not wanted.
    overload
        Which of the functions of one name is meant.
    """

    op_type: str
    domain: str
    attributes: Mapping[str, Any]
    opset: int
    scope: Any  # a Scope of `graph`, which stands on this
    name: str = ""
    outputs: Sequence[str] = ("",)
    overload: str = ""
    defaults: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.domain = domain_of(self.domain)
        self.defaults = _defaults(self.op_type, self.domain, self.opset)

    def __getitem__(self, attribute: str) -> Any:
        """Return an attribute, or its default, or None."""
        value = self.attributes.get(attribute)
        return self.defaults.get(attribute) if value is None else value

    def __str__(self) -> str:
        return f"node {self.name!r} ({self.op_type})" if self.name else f"node of {self.op_type}"

    @property
    def schema(self) -> Any:
        """Return the schema of the operator, or None if ONNX has none of its name."""
        return _schema(self.op_type, self.domain, self.opset)

    @property
    def has_subgraphs(self) -> bool:
        """Return whether an attribute is a graph."""
        return any(hasattr(value, "output_names") for value in self.attributes.values())

    def option(self, attribute: str, inputs: Sequence[Value], i: int) -> list[int] | None:
        """Return integers that older opsets have as an attribute and newer ones as input number `i`; None if neither
        has them.
        """
        if i < len(inputs) and inputs[i] is not None:
            return ints(inputs[i])
        given = self[attribute]
        return None if given is None else ([int(v) for v in given] if isinstance(given, Sequence) else [int(given)])

    def dtype(self, element: int) -> DType:
        """Return the dtype of an element type that an attribute names; see `dtype_of_element`."""
        return dtype_of_element(element, str(self))


@cache
def _schema(op_type: str, domain: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def _defaults(op_type: str, domain: str, opset: int) -> dict[str, Any]:
    schema = _schema(op_type, domain, opset)
    values = {} if schema is None else {name: a.default_value for name, a in schema.attributes.items()}
    return {name: attribute_value(v, f"the default of {op_type}") for name, v in values.items() if v.type}


def dtype_of_element(element: int, where: str) -> DType:
    """Return the dtype of an ONNX element type.

    Raises
    ------
    NotSupportedError
        If numpy has none; `where` says who asks.
    """
    try:
        name = onnx.TensorProto.DataType.Name(element)
    except ValueError:
        name = str(element)
    if name not in _ELEMENTS:
        raise NotSupportedError(
            f"{where}: numpy has no elements of type {name}; cast them in the model to one of {', '.join(_ELEMENTS)}"
        )
    return as_dtype(onnx.helper.tensor_dtype_to_np_dtype(element))


def tensor_value(tensor: Any, where: str) -> HostArray:
    """Return the elements of a TensorProto that holds them itself.

    Raises
    ------
    NotSupportedError
        If numpy has no such elements.
    ValueError
        If they are elsewhere, or fewer than the shape says.
    """
    dtype_of_element(tensor.data_type, where)
    if onnx.external_data_helper.uses_external_data(tensor):
        raise ValueError(f"{where}: its elements are in another file, which only initializers of a model may have")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _sparse_value(sparse: Any, where: str) -> HostArray:
    values = tensor_value(sparse.values, where)
    at = tensor_value(sparse.indices, where)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if at.ndim == 1:
        dense.reshape(-1)[at] = values
    else:
        dense[tuple(at.T)] = values
    return dense


def attribute_value(attribute: Any, where: str) -> Any:
    """Return the value of an AttributeProto: numbers, text, host arrays, lists of them; graphs and types as they
    are.
    """
    proto = onnx.AttributeProto
    if attribute.type == proto.SPARSE_TENSOR:
        return _sparse_value(attribute.sparse_tensor, where)
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == proto.STRING:
        return value.decode()
    if attribute.type == proto.STRINGS:
        return [v.decode() for v in value]
    if attribute.type == proto.TENSOR:
        return tensor_value(value, where)
    return list(value) if attribute.type in (proto.INTS, proto.FLOATS) else value


# ------------------------------------------------------------------------------------------------------ values


def is_host(value: Value) -> bool:
    """Return whether a value is host data."""
    return isinstance(value, np.ndarray)


def host(value: Value) -> HostArray:
    """Return host data of a value: what is no host data is computed, which shapes that depend on data need."""
    return np.asarray(value)


def ints(value: Value) -> list[int]:
    """Return the elements of a value as integers."""
    return [int(n) for n in host(value).reshape(-1)]


def along(axis: int, ndim: int) -> tuple[int, ...]:
    """Return the shape by which a vector broadcasts along one of `ndim` axes.

    >>> along(-2, 3)
    (1, -1, 1)
    """
    return tuple([-1 if a == axis % ndim else 1 for a in range(ndim)])


def array_of(value: Value) -> DistArray:
    """Return a value as a DistArray."""
    made: DistArray = value if isinstance(value, DistArray) else namespace().asarray(value)
    return made
