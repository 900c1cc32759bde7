"""Products of matrices and what is quantised: scales, zero points, and sums of 32-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, along

dx: Any = namespace()


def gemm_product(call: NodeCall, a: Value, b: Value) -> Value:
    """Return the product of the matrices of a Gemm."""
    a = dx.matrix_transpose(a) if call["transA"] else a
    b = dx.matrix_transpose(b) if call["transB"] else b
    return dx.matmul(a, b)


def gemm_of(call: NodeCall, product: Value, c: Value = None) -> Value:
    """Return the Gemm whose product is known."""
    made = _times(product, call["alpha"])
    return made if c is None else made + _times(c, call["beta"])


def _times(x: Value, factor: float) -> Value:
    return x if factor == 1 else dx.astype(x * factor, x.dtype, copy=False)


# ------------------------------------------------------------------------------------------------------ quantised


def _along(parameter: Value, x: Value, axis: int, block: int) -> Value:
    """Return a scale or zero point as it broadcasts to `x`: one for all, for each index of an axis, or for each block
    of `block` indices of it.
    """
    if not parameter.ndim or (parameter.ndim == 1 and parameter.shape[0] == 1 and not block):
        return dx.reshape(parameter, ())
    if not block:
        return dx.reshape(parameter, along(axis, x.ndim))
    axis %= x.ndim
    repeated = dx.repeat(parameter, block, axis=axis)
    return repeated[tuple(slice(x.shape[axis]) if a == axis else slice(None) for a in range(x.ndim))]


def _quantize(call: NodeCall, x: Value, scale: Value, zero: Value = None) -> Value:
    element = call["output_dtype"]
    target = zero.dtype if zero is not None else call.dtype(element) if element else np.dtype(np.uint8)
    axis, block = call["axis"], call["block_size"] or 0
    if call["precision"]:
        x, scale = (dx.astype(v, call.dtype(call["precision"]), copy=False) for v in (x, scale))
    levels = dx.rint(x / _along(scale, x, axis, block))
    # Clipped as it is, then cast: what is far outside fits no integer.
    limits = np.iinfo(target)
    levels = dx.astype(dx.clip(levels, -(2**30), 2**30), np.int32, copy=False)
    levels = levels if zero is None else levels + dx.astype(_along(zero, x, axis, block), np.int32)
    return dx.astype(dx.clip(levels, limits.min, limits.max), target, copy=False)


def _dequantize(call: NodeCall, x: Value, scale: Value, zero: Value = None) -> Value:
    axis, block = call["axis"], call["block_size"] or 0
    levels = dx.astype(x, np.float32)
    if zero is not None:
        levels = levels - dx.astype(_along(zero, x, axis, block), np.float32)
    target = call.dtype(call["output_dtype"]) if call["output_dtype"] else scale.dtype
    return dx.astype(levels * _along(scale, x, axis, block), target, copy=False)


def _centred(x: Value, zero: Value, axis: int) -> Value:
    """Return what 32-bit integers say of `x` less its zero point, which may be one for each row (-2) or column (-1)."""
    wide = dx.astype(x, np.int32)
    if zero is None:
        return wide
    zero = dx.astype(zero, np.int32)
    return wide - (dx.expand_dims(zero, axis=-1) if zero.ndim == 1 and axis == -2 and zero.shape[0] > 1 else zero)


def integer_product(call: NodeCall, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Value:
    """Return a product of quantised matrices in 32-bit integers."""
    return dx.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))


def _quantized_product(
    call: NodeCall, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value, y_scale: Value,
    y_zero: Value,
) -> Value:  # fmt: skip
    product = integer_product(call, a, b, a_zero, b_zero)
    return requantized(product, a_scale, b_scale, y_scale, y_zero)


def requantized(product: Value, a_scale: Value, b_scale: Value, y_scale: Value, y_zero: Value) -> Value:
    """Return a product of 32-bit integers as levels of the scale of the result."""
    rows = dx.expand_dims(a_scale, axis=-1) if a_scale.ndim == 1 and a_scale.shape[0] > 1 else a_scale
    factor = dx.astype(rows, np.float32) * dx.astype(b_scale, np.float32) / dx.astype(y_scale, np.float32)
    limits = np.iinfo(y_zero.dtype)
    levels = dx.rint(product * factor) + dx.astype(y_zero, np.float32)
    return dx.astype(dx.clip(levels, limits.min, limits.max), y_zero.dtype)


ROWS: dict[str, Row] = {
    "DequantizeLinear": _dequantize,
    "Einsum": lambda call, *inputs: dx.einsum(call["equation"].replace(" ", ""), *inputs),
    "Gemm": lambda call, a, b, c=None: gemm_of(call, gemm_product(call, a, b), c),
    "MatMul": lambda call, a, b: dx.matmul(a, b),
    "MatMulInteger": integer_product,
    "QLinearMatMul": _quantized_product,
    "QuantizeLinear": _quantize,
}
