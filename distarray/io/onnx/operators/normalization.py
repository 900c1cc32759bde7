"""Normalisation, and pooling over all of space: means, norms and scales of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value

dx: Any = namespace()


def _per_channel(x: Value, v: Value) -> Value:
    return dx.reshape(v, (-1, *(1,) * (x.ndim - 2)))


def _scaled(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    """Return ``(x - mean) / sqrt(var + epsilon) * scale + bias``, where each broadcasts to `x`, in its dtype."""
    made = (x - mean) / dx.sqrt(var + call["epsilon"]) * scale + bias
    return dx.astype(made, x.dtype, copy=False)


def _batch_normalization(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    scale, bias = _per_channel(x, scale), _per_channel(x, bias)
    if not call["training_mode"]:
        return _scaled(call, x, scale, bias, _per_channel(x, mean), _per_channel(x, var))
    others = tuple(a for a in range(x.ndim) if a != 1)
    own_mean, own_var = dx.mean(x, axis=others), dx.var(x, axis=others)
    old = call["momentum"]
    made = _scaled(call, x, scale, bias, _per_channel(x, own_mean), _per_channel(x, own_var))
    moved = [(o * old + n * (1 - old)) for o, n in ((mean, own_mean), (var, own_var))]
    return made, *(dx.astype(m, mean.dtype, copy=False) for m in moved)


def _instance_normalization(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    axes = tuple(range(2, x.ndim))
    mean, var = dx.mean(x, axis=axes, keepdims=True), dx.var(x, axis=axes, keepdims=True)
    return _scaled(call, x, _per_channel(x, scale), _per_channel(x, bias), mean, var)


def _norm(x: Value, p: int, axes: Any) -> Value:
    if p == 1:
        return dx.sum(dx.abs(x), axis=axes, keepdims=True)
    if p == 2:
        return dx.sqrt(dx.sum(x * x, axis=axes, keepdims=True))
    return dx.sum(dx.abs(x) ** p, axis=axes, keepdims=True) ** (1 / p)


def _lp_normalization(call: NodeCall, x: Value) -> Value:
    norm = _norm(x, call["p"], call["axis"])
    return dx.where(norm == 0, 0, x / dx.where(norm == 0, 1, norm))


def _local_response(call: NodeCall, x: Value) -> Value:
    size, channels = call["size"], x.shape[1]
    before = (size - 1) // 2
    padded = dx.pad(x * x, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    near = sum((padded[:, i : i + channels] for i in range(1, size)), padded[:, :channels])
    return dx.astype(x / (call["bias"] + call["alpha"] / size * near) ** call["beta"], x.dtype, copy=False)


def _over_space(function: Callable[[NodeCall, Value, tuple[int, ...]], Value]) -> Row:
    return lambda call, x: function(call, x, tuple(range(2, x.ndim)))


ROWS: dict[str, Row] = {
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": _over_space(lambda call, x, axes: dx.mean(x, axis=axes, keepdims=True)),
    "GlobalLpPool": _over_space(lambda call, x, axes: _norm(x, call["p"], axes)),
    "GlobalMaxPool": _over_space(lambda call, x, axes: dx.max(x, axis=axes, keepdims=True)),
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response,
    "LpNormalization": _lp_normalization,
}
