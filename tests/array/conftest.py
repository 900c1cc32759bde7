"""The operations of the RFC (environments.md, section 7) as one table, which several files run in several ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest


class RfcOperation(NamedTuple):
    """`run(xp, a, b, k)` of a numpy-like namespace and two tables of 10 x 4 floats and one of integers."""

    name: str
    run: Callable[[Any, Any, Any, Any], Any]


def rfc_inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct data; repeated integers."""
    rng = np.random.default_rng(7)
    return rng.random((10, 4)) + 0.25, rng.random((10, 4)) * 3 + 0.5, rng.integers(-3, 4, (10, 4))


def _insert_slice(xp: Any, a: Any, b: Any, k: Any) -> Any:
    x = a + 0
    x[2:8:2, 1:] = b[:3, 1:]
    x[0] += 5
    x[::-1][:2] = 1.5
    return x


def _insert_mask(xp: Any, a: Any, b: Any, k: Any) -> Any:
    x = a + 0
    x[k > 0] = -1.0
    return x


def _insert_integers(xp: Any, a: Any, b: Any, k: Any) -> Any:
    x = a + 0
    x[[1, 7, 3]] = b[:3]
    return x


def _immutable_insert(xp: Any, a: Any, b: Any, k: Any) -> Any:
    if xp is np:
        x = a.copy()
        x[1:9:3] = b[:3]
        return x
    return a.at[1:9:3].set(b[:3])


_UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "conj", "cos", "cosh", "exp", "expm1"),
    *("floor", "imag", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "negative", "positive", "real"),
    *("reciprocal", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
)
_UNIT_INTERVAL = frozenset({"acos", "asin", "atanh"})
_BINARY = (
    *("add", "atan2", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot", "less"),
    *("less_equal", "logaddexp", "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow", "remainder"),
    "subtract",
)
_INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
_REDUCTIONS = ("max", "min", "mean", "prod", "sum", "var", "std")


def _unary(name: str) -> Callable[[Any, Any, Any, Any], Any]:
    def run(xp: Any, a: Any, b: Any, k: Any) -> Any:
        x = a / 2 if name in _UNIT_INTERVAL else a + 1 if name == "acosh" else a * 3 - b
        return getattr(xp, name)(xp.abs(x) if name.startswith("log") or name == "sqrt" else x)

    return run


def _binary(name: str) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda xp, a, b, k: getattr(xp, name)(a, b)


def _integers(name: str) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda xp, a, b, k: getattr(xp, name)(xp.abs(k) + 9, xp.abs(k))


def _logical(name: str) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda xp, a, b, k: getattr(xp, name)(a > 0.5, b > 1)


def _reduction(name: str, **options: Any) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda xp, a, b, k: getattr(xp, name)(a * b, **options)


_TABLE: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "linspace": lambda xp, a, b, k: xp.linspace(0.1, 7, 23),
    "linspace without endpoint": lambda xp, a, b, k: xp.linspace(3, -2, 10, endpoint=False),
    "arange": lambda xp, a, b, k: xp.arange(3, 40, 4),
    "arange of floats": lambda xp, a, b, k: xp.arange(0.5, 9, 0.7),
    "zeros": lambda xp, a, b, k: xp.zeros((10, 3)),
    "ones": lambda xp, a, b, k: xp.ones((10, 3), dtype=xp.float32),
    "full": lambda xp, a, b, k: xp.full((7, 2), 2.5),
    "eye": lambda xp, a, b, k: xp.eye(7, 5, k=1),
    "empty": lambda xp, a, b, k: xp.isnan(xp.empty((6, 2)) * xp.nan),
    "zeros_like": lambda xp, a, b, k: xp.zeros_like(a),
    "ones_like": lambda xp, a, b, k: xp.ones_like(k),
    "full_like": lambda xp, a, b, k: xp.full_like(a, 1.5),
    "fromfunction": lambda xp, a, b, k: xp.fromfunction(lambda i, j: i * 10 + j, (6, 5)),
    "meshgrid": lambda xp, a, b, k: tuple(xp.meshgrid(a[:, 0], b[0])),
    "tril": lambda xp, a, b, k: xp.tril(a, -1),
    "triu": lambda xp, a, b, k: xp.triu(a, 1),
    "cast": lambda xp, a, b, k: (a * 10).astype(xp.int32),
    "cast of integers": lambda xp, a, b, k: k.astype(xp.complex64),
    "cast to bool": lambda xp, a, b, k: k.astype("bool"),
    "broadcast_to": lambda xp, a, b, k: xp.broadcast_to(a, (3, 10, 4)) + 1,
    "broadcast_arrays": lambda xp, a, b, k: tuple(x + 0 for x in xp.broadcast_arrays(a, b[0])),
    "subview": lambda xp, a, b, k: a[1:9, ::2] * b[2:, 1::2],
    "subview, reversed": lambda xp, a, b, k: a[::-2, ::-1] + b[1::2],
    "extract_slice": lambda xp, a, b, k: xp.copy(a[2:5, 1:]),
    "extract_mask": lambda xp, a, b, k: a[k > 0],
    "extract by integers": lambda xp, a, b, k: a[[3, 0, 9, -2]],
    "insert_slice": _insert_slice,
    "insert by mask": _insert_mask,
    "insert by integers": _insert_integers,
    "immutable_insert_slice": _immutable_insert,
    "concat": lambda xp, a, b, k: xp.concat([a, b[:3], a[::2]]),
    "concat of columns": lambda xp, a, b, k: xp.concat([a, b], axis=1),
    "stack": lambda xp, a, b, k: xp.stack([a, b], axis=1),
    "expand_dims": lambda xp, a, b, k: xp.expand_dims(a, axis=1) - b[None, :, :],
    "flip": lambda xp, a, b, k: xp.flip(a, axis=0) + xp.flip(b),
    "permute_dims": lambda xp, a, b, k: xp.permute_dims(a, (1, 0)) + b.T,
    "squeeze": lambda xp, a, b, k: xp.squeeze(a[:, None, 2:3], axis=(1, 2)) * 2,
    "roll": lambda xp, a, b, k: xp.roll(a, 3, axis=0),
    "roll, flat": lambda xp, a, b, k: xp.roll(a, -7),
    "roll of both axes": lambda xp, a, b, k: xp.roll(a, (2, 1), axis=(0, 1)),
    "reshape": lambda xp, a, b, k: xp.reshape(a, (4, 10)) * 2,
    "reshape of a transpose": lambda xp, a, b, k: xp.reshape(a.T, (5, 8)),
    "matmul": lambda xp, a, b, k: a @ b.T,
    "matmul of a vector": lambda xp, a, b, k: a @ b[0],
    "matmul of integers": lambda xp, a, b, k: k.T @ k,
    "matmul, stacked": lambda xp, a, b, k: xp.matmul(a.reshape(5, 2, 4), b.reshape(5, 4, 2)),
    "matrix_transpose": lambda xp, a, b, k: xp.linalg.matrix_transpose(a.reshape(5, 2, 4)) + 0,
    "vecdot": lambda xp, a, b, k: xp.linalg.vecdot(a, b),
    "tensordot": lambda xp, a, b, k: xp.tensordot(a, b, axes=((0,), (0,))),
    "argmax": lambda xp, a, b, k: xp.argmax(k, axis=0),
    "argmin": lambda xp, a, b, k: xp.argmin(k, axis=1),
    "argmax of all": lambda xp, a, b, k: xp.argmax(k),
    "nonzero": lambda xp, a, b, k: xp.nonzero(k),
    "where": lambda xp, a, b, k: xp.where(k > 0, a, b),
    "where with a scalar": lambda xp, a, b, k: xp.where(k > 0, a, 0.0),
    "unique_values": lambda xp, a, b, k: xp.unique_values(k) if xp is not np else np.unique(k),
    "unique_counts": lambda xp, a, b, k: tuple(xp.unique_counts(k)),
    "unique_inverse": lambda xp, a, b, k: tuple(xp.unique_inverse(k)),
    "unique_all": lambda xp, a, b, k: tuple(xp.unique_all(k)),
    "sort": lambda xp, a, b, k: xp.sort(a, axis=0),
    "sort, descending": lambda xp, a, b, k: (
        xp.sort(a, axis=0, descending=True) if xp is not np else np.sort(a, axis=0)[::-1]
    ),
    "argsort": lambda xp, a, b, k: xp.argsort(k, axis=0, stable=True),
    "argsort of rows": lambda xp, a, b, k: xp.argsort(a, axis=1),
    "cumulative_sum": lambda xp, a, b, k: xp.cumulative_sum(a, axis=0),
    "any": lambda xp, a, b, k: xp.any(k > 2, axis=0),
    "all": lambda xp, a, b, k: xp.all(k > -3, axis=1, keepdims=True),
    "all of all": lambda xp, a, b, k: xp.all(k),
    **{name: _unary(name) for name in _UNARY},
    **{name: _binary(name) for name in _BINARY},
    **{name: _integers(name) for name in _INTEGERS},
    **{name: _logical(name) for name in _LOGICAL},
    "logical_not": lambda xp, a, b, k: xp.logical_not(a > 0.5),
    "bitwise_invert": lambda xp, a, b, k: xp.bitwise_invert(k),
    "clip": lambda xp, a, b, k: xp.clip(a, 0.4, 0.9),
    **{name: _reduction(name) for name in _REDUCTIONS},
    **{f"{name} of axis 0": _reduction(name, axis=0) for name in _REDUCTIONS},
    **{f"{name} of axis 1": _reduction(name, axis=-1, keepdims=True) for name in _REDUCTIONS},
    **{f"{name} of both axes": _reduction(name, axis=(1, 0)) for name in _REDUCTIONS},
    "mixed dtypes": lambda xp, a, b, k: a.astype(xp.float32) * k + k.astype(xp.int8),
}


@pytest.fixture(params=[RfcOperation(name, run) for name, run in _TABLE.items()], ids=list(_TABLE))
def rfc_operation(request: pytest.FixtureRequest) -> RfcOperation:
    """Each row of the RFC's table."""
    return request.param


@pytest.fixture
def rfc_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rfc_inputs()
