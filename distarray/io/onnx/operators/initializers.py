"""Initializers: tensors in the model, or in files beside it, which tasks read where they need them."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.io.onnx.onnx_package import onnx
from distarray.io.onnx.operators.call import SMALL, Value, attribute_value, dtype_of_element, tensor_value
from distarray.io.onnx.wellformed import external_elements


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
        where = f"initializer {tensor.values.name!r}"
        wrapped = onnx.AttributeProto(type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=tensor)
        name, value = tensor.values.name, attribute_value(wrapped, where)
    else:
        name, where = tensor.name, f"initializer {tensor.name!r}"
        if onnx.external_data_helper.uses_external_data(tensor):
            value = _external(tensor, folder, where)
        else:
            value = tensor_value(tensor, where)
    return name, value


def _external(tensor: Any, folder: str | None, where: str) -> Any:
    """Return the elements of a file as a memory map, which arrays of this package read task by task."""
    dtype = dtype_of_element(tensor.data_type, where)
    path, offset, nbytes = external_elements(tensor, folder, dtype.itemsize)
    shape = tuple(tensor.dims)
    if not nbytes:
        return np.zeros(shape, dtype)
    mapped = np.memmap(path, dtype.newbyteorder("<"), "r", offset, shape)
    return np.array(mapped, dtype) if mapped.size <= SMALL else mapped
