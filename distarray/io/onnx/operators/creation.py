"""Operators that make arrays of shapes, numbers and chance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.loop_rules import range_length
from distarray.io.onnx.operators.call import SMALL, NodeCall, Row, Value, host, ints
from distarray.io.onnx.protobuf import CONSTANT_DTYPES

dx: Any = namespace()


def _constant(call: NodeCall) -> Value:
    for attribute, dtype in CONSTANT_DTYPES.items():
        if call.attributes.get(attribute) is not None:
            return np.asarray(call.attributes[attribute], dtype)
    for attribute in ("value_string", "value_strings"):
        if call.attributes.get(attribute) is not None:
            return call.dtype(8)  # which says that numpy has no texts here
    value = call["value"] if call["sparse_value"] is None else call["sparse_value"]
    if value is None:
        raise ValueError(f"{call} has no value")
    return value


def _full(call: NodeCall, shape: Value) -> Value:
    fill = np.zeros(1, np.float32) if call["value"] is None else call["value"]
    extents = tuple(ints(shape))
    make = np.full if math.prod(extents) <= SMALL else dx.full
    return make(extents, fill.reshape(-1)[0], dtype=fill.dtype)


def _range(call: NodeCall, start: Value, limit: Value, delta: Value) -> Value:
    dtype = start.dtype
    first, last, step = (host(v).reshape(-1)[0].item() for v in (start, limit, delta))
    # As the specification's: each is the first plus a multiple of the step, so that nothing adds up.
    return dx.astype(first + dx.arange(range_length(first, last, step)) * step, dtype, copy=False)


def _dtype_like(call: NodeCall, x: Value) -> Any:
    """Return the dtype that an operator says, or else that of its input."""
    return call.dtype(call["dtype"]) if call["dtype"] else x.dtype


# ---------------------------------------------------------------------------------------------------------- chance


def _generator(call: NodeCall) -> Any:
    seed = call["seed"]
    # The bits of the seed, which is a float.
    return dx.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))


def _drawn(call: NodeCall, shape: tuple[int, ...], dtype: Any) -> Value:
    generator = _generator(call)
    if "Normal" in call.op_type:
        made = generator.normal(call["mean"], call["scale"], shape)
    else:
        made = generator.uniform(call["low"], call["high"], shape)
    return dx.astype(made, dtype, copy=False)


def _random(call: NodeCall) -> Value:
    return _drawn(call, tuple(call["shape"]), call.dtype(call["dtype"]))


def _random_like(call: NodeCall, x: Value) -> Value:
    return _drawn(call, x.shape, _dtype_like(call, x))


def _multinomial(call: NodeCall, x: Value) -> Value:
    """Draw categories, given the logarithms of how likely each is."""
    shares = dx.exp(x - dx.max(x, axis=1, keepdims=True))
    sums = dx.cumulative_sum(shares, axis=1)
    marks = _generator(call).random((x.shape[0], call["sample_size"], 1)) * dx.reshape(sums[:, -1], (-1, 1, 1))
    found = dx.sum(dx.expand_dims(sums[:, :-1], axis=1) <= marks, axis=2)
    return dx.astype(found, call.dtype(call["dtype"]), copy=False)


ROWS: dict[str, Row] = {
    "Bernoulli": lambda call, x: dx.astype(_generator(call).random(x.shape) < x, _dtype_like(call, x)),
    "Constant": _constant,
    "ConstantOfShape": _full,
    "EyeLike": lambda call, x: dx.eye(x.shape[0], x.shape[1], k=call["k"], dtype=_dtype_like(call, x)),
    "Multinomial": _multinomial,
    "RandomNormal": _random,
    "RandomNormalLike": _random_like,
    "RandomUniform": _random,
    "RandomUniformLike": _random_like,
    "Range": _range,
    "Shape": lambda call, x: np.asarray(x.shape[call["start"] : call["end"]], np.int64),
    "Size": lambda call, x: np.asarray(math.prod(x.shape), np.int64),
}
