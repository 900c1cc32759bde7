"""Elementwise operators: ONNX's names and what they are of this package, one row each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, host, ints

dx: Any = namespace()


def _same(name: str) -> Row:
    """Return the row of a function of this package that takes the inputs as they are."""
    return lambda call, *inputs: getattr(dx, name)(*inputs)


def _many(name: str) -> Row:
    """Return the row of a function of two that takes any number of inputs from the left."""
    return lambda call, *inputs: reduce(getattr(dx, name), inputs) if len(inputs) > 1 else inputs[0]


def _kept(function: Callable[..., Any]) -> Row:
    """Return a row whose result has the dtype of the first input, whatever it is computed in."""
    return lambda call, x, *rest: dx.astype(function(call, x, *rest), x.dtype, copy=False)


# ---------------------------------------------------------------------------------------------------- arithmetic


def _divide(call: NodeCall, x: Value, y: Value) -> Value:
    if x.dtype.kind not in "iu":
        return dx.divide(x, y)
    down = dx.floor_divide(x, y)
    if x.dtype.kind == "u":
        return down
    # Integers are divided towards zero: where signs differ, what is not exact is one more than rounded down.
    is_below = dx.logical_and(dx.multiply(down, y) != x, dx.less(x, 0) != dx.less(y, 0))
    return dx.where(is_below, down + 1, down)


def _mean(call: NodeCall, *inputs: Value) -> Value:
    return dx.divide(reduce(dx.add, inputs), len(inputs)) if len(inputs) > 1 else inputs[0]


def _clip(call: NodeCall, x: Value, low: Value = None, high: Value = None) -> Value:
    if call.opset < 11:
        with np.errstate(over="ignore"):  # what nobody says are the bounds of single precision
            low, high = (np.asarray(call[name]).astype(x.dtype) for name in ("min", "max"))
    x = x if low is None else dx.maximum(x, low)
    return x if high is None else dx.minimum(x, high)  # where the bounds cross, the upper one holds


def _is_infinite(call: NodeCall, x: Value) -> Value:
    wanted = {"isneginf": call["detect_negative"] != 0, "isposinf": call["detect_positive"] != 0}
    if all(wanted.values()):
        return dx.isinf(x)
    name = next((name for name, is_wanted in wanted.items() if is_wanted), None)
    return dx.zeros_like(x, dtype=bool) if name is None else getattr(dx, name)(x)


# --------------------------------------------------------------------------------------------------- activations


def _expm1_below(x: Value, scale: float = 1.0) -> Value:
    """Return ``exp(x / scale) - 1`` where x is negative, 0 elsewhere: what is positive must not overflow."""
    below = dx.minimum(x, 0)
    return dx.expm1(below if scale == 1.0 else below / scale)


def _gelu(call: NodeCall, x: Value) -> Value:
    if call["approximate"] == "tanh":
        return 0.5 * x * (1 + dx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + dx.special.erf(x * math.sqrt(0.5)))


def _shrink(call: NodeCall, x: Value) -> Value:
    bias, bound = call["bias"], call["lambd"]
    return dx.where(x < -bound, x + bias, dx.where(x > bound, x - bias, dx.zeros_like(x)))


def _dropout(call: NodeCall, x: Value, ratio: Value = None, training: Value = None) -> Value:
    share = 0.5 if ratio is None else float(host(ratio).reshape(-1)[0])
    if training is None or not ints(training)[0] or not share:
        return x, dx.ones_like(x, dtype=bool if call.opset >= 10 else x.dtype)
    with np.errstate(divide="ignore"):
        scale = float(np.divide(1.0, 1.0 - share)) if share < 1 else 0.0
    mask = dx.random.default_rng(call["seed"]).random(x.shape) >= share
    return dx.where(mask, x * scale, 0), mask


#: Functions of this package that are an operator as they stand.
_SAME = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Exp": "exp", "Floor": "floor", "IsNaN": "isnan",
    "Log": "log", "Neg": "negative", "Not": "logical_not", "Reciprocal": "reciprocal", "Round": "rint",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "BitwiseNot": "bitwise_invert", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "Add": "add",
    "Sub": "subtract", "Mul": "multiply", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "Where": "where",
}  # fmt: skip

#: Functions of two of this package that an operator applies to all of its inputs.
_MANY = {"Max": "maximum", "Min": "minimum", "Sum": "add"}

#: Formulas whose result has the dtype of the first input.
_KEPT: dict[str, Callable[..., Any]] = {
    "Celu": lambda call, x: dx.maximum(x, 0) + call["alpha"] * _expm1_below(x, call["alpha"]),
    "Elu": lambda call, x: dx.where(x < 0, call["alpha"] * _expm1_below(x), x),
    "Erf": lambda call, x: dx.special.erf(x),
    "Gelu": _gelu,
    "HardSigmoid": lambda call, x: dx.clip(x * call["alpha"] + call["beta"], 0, 1),
    "HardSwish": lambda call, x: x * dx.clip(x * (1 / 6) + 0.5, 0, 1),
    "LeakyRelu": lambda call, x: dx.where(x < 0, x * call["alpha"], x),
    "Mish": lambda call, x: x * dx.tanh(dx.logaddexp(x, 0)),
    "PRelu": lambda call, x, slope: dx.where(x < 0, x * slope, x),
    "Pow": lambda call, x, y: dx.pow(x, y),
    "Relu": lambda call, x: dx.maximum(x, 0),
    "Selu": lambda call, x: call["gamma"] * dx.where(x > 0, x, call["alpha"] * _expm1_below(x)),
    "Shrink": _shrink,
    "Sigmoid": lambda call, x: dx.special.expit(x),
    "Softplus": lambda call, x: dx.logaddexp(x, 0),
    "Softsign": lambda call, x: x / (1 + dx.abs(x)),
    "Swish": lambda call, x: x * dx.special.expit(x * call["alpha"]),
    "ThresholdedRelu": lambda call, x: dx.where(x > call["alpha"], x, 0),
}

ROWS: dict[str, Row] = {
    **{operator: _same(name) for operator, name in _SAME.items()},
    **{operator: _many(name) for operator, name in _MANY.items()},
    **{operator: _kept(function) for operator, function in _KEPT.items()},
    "BitShift": lambda call, x, y: (dx.left_shift if call["direction"] == "LEFT" else dx.right_shift)(x, y),
    "Cast": lambda call, x: dx.astype(x, call.dtype(call["to"]), copy=False),
    "CastLike": lambda call, x, like: dx.astype(x, like.dtype, copy=False),
    "Clip": _clip,
    "Div": _divide,
    "Dropout": _dropout,
    "Identity": lambda call, x: x,
    "IsInf": _is_infinite,
    "Mean": _mean,
    "Mod": lambda call, x, y: (dx.fmod if call["fmod"] else dx.remainder)(x, y),
}
