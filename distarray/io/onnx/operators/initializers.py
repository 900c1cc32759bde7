"""Initializers: tensors in the model, or in files beside it, which tasks read where they need them."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from distarray.io.onnx.operators.call import SMALL, Value, attribute_value, dtype_of_element, onnx_package, tensor_value


def initial_value(tensor: Any, folder: str | None) -> tuple[str, Value]:
    """Return name and value of an initializer, which may be a map of a file.

    Raises
    ------
    NotSupportedError
        If numpy lacks its elements.
    ValueError
        If it is in a file that is none of the model's folder, or is too short.
    """
    onnx = onnx_package()
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
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ValueError(f"{where} is in the file {location!r}: say folder=, the one that the model is in")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    # A link that leads out, an absolute path, and '..' all end elsewhere.
    if not location or os.path.commonpath([root, path]) != root or not os.path.isfile(path):
        raise ValueError(f"{where}: {location!r} is no file in the model's folder, and nothing else is read")
    shape = tuple(tensor.dims)
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or nbytes)
    except ValueError:
        raise ValueError(f"{where}: offset and length of {location!r} are no integers") from None
    if length != nbytes or offset < 0 or offset + nbytes > os.path.getsize(path):
        raise ValueError(
            f"{where}: shape {shape} of {dtype} needs {nbytes} bytes from byte {offset} on, but the model says "
            f"{length} and {location!r} has {os.path.getsize(path)}"
        )
    if not nbytes:
        return np.zeros(shape, dtype)
    mapped = np.memmap(path, dtype.newbyteorder("<"), "r", offset, shape)
    return np.array(mapped, dtype) if mapped.size <= SMALL else mapped
