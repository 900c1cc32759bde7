"""Products and reductions in parts: what each device makes of its part of the loops that go, and how these are joined.

One row for each operator. A part is the same operator on slices of the inputs, or another one where only what comes
after the sum differs (R-3): means are sums, of L2 the squares are summed, and positions travel beside their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Value
from distarray.io.onnx.operators.contractions import ROWS as CONTRACTIONS
from distarray.io.onnx.operators.contractions import gemm_of, gemm_product, integer_product, requantized
from distarray.io.onnx.operators.reductions import ROWS as REDUCTIONS

dx: Any = namespace()

#: What one device has: as a rule one array.
Part: TypeAlias = tuple[Value, ...]


class PartialResult(NamedTuple):
    """A PartialResult is the row of an operator that can be done in parts.

    Parameters
    ----------
    local
        From the call, slices of the inputs, and the positions of a slice along the axis that is cut, to a part.
    join
        From the call and two parts to one.
    finish
        From the call, all parts joined, and the whole inputs to the output.
    """

    local: Callable[[NodeCall, Sequence[Value], range], Part]
    join: Callable[[NodeCall, Part, Part], Part]
    finish: Callable[[NodeCall, Part, Sequence[Value]], Value]


def _by(name: str) -> Callable[[NodeCall, Part, Part], Part]:
    return lambda call, a, b: (getattr(dx, name)(a[0], b[0]),)


def _as_it_is(call: NodeCall, part: Part, inputs: Sequence[Value]) -> Value:
    return part[0]


def _reduction(
    operator: str,
    join: str,
    last: Callable[[NodeCall, Value, Sequence[Value]], Value] | None = None,
    *,
    is_wide: bool = False,
) -> PartialResult:
    """Return the row of a reduction.

    Parameters
    ----------
    operator
        What reduces a part.
    join
        The function of this package that joins two.
    last
        What is done with all of them joined; its result is cast to the dtype of the input.
    is_wide
        Whether parts are floating-point numbers, of single precision at least.
    """
    row = REDUCTIONS[operator]

    def local(call: NodeCall, inputs: Sequence[Value], at: range) -> Part:
        x, *axes = inputs
        if is_wide:
            wide = np.float64 if x.dtype.kind in "iub" else np.promote_types(x.dtype, np.float32)
            x = dx.astype(x, wide, copy=False)
        return (row(call, x, *axes),)

    def finish(call: NodeCall, part: Part, inputs: Sequence[Value]) -> Value:
        made = part[0] if last is None else last(call, part[0], inputs)
        return dx.astype(made, inputs[0].dtype, copy=False)

    return PartialResult(local, _by(join), finish)


def _divided(call: NodeCall, total: Value, inputs: Sequence[Value]) -> Value:
    shape = inputs[0].shape
    return total / prod([shape[axis] for axis in call.option("axes", inputs, 1) or range(len(shape))])


def _position(largest: bool) -> PartialResult:
    """Return the row of ArgMax or ArgMin: values with their positions in the whole axis."""
    operator, extreme = ("ArgMax", "max") if largest else ("ArgMin", "min")

    def local(call: NodeCall, inputs: Sequence[Value], at: range) -> Part:
        x, keep = inputs[0], bool(call["keepdims"])
        return (
            getattr(dx, extreme)(x, axis=call["axis"], keepdims=keep),
            REDUCTIONS[operator](call, x) * at.step + at.start,
        )

    def join(call: NodeCall, a: Part, b: Part) -> Part:
        (x, i), (y, j) = a, b
        is_better = y > x if largest else y < x
        is_equal = x == y
        if x.dtype.kind == "f":  # as in numpy nothing comes before what is no number
            x_nan, y_nan = dx.isnan(x), dx.isnan(y)
            is_better = dx.logical_or(is_better, dx.logical_and(y_nan, dx.logical_not(x_nan)))
            is_equal = dx.logical_or(is_equal, dx.logical_and(x_nan, y_nan))
        comes_before = j > i if call["select_last_index"] else j < i
        is_second = dx.logical_or(is_better, dx.logical_and(is_equal, comes_before))
        return dx.where(is_second, y, x), dx.where(is_second, j, i)

    return PartialResult(local, join, lambda call, part, inputs: part[1])


def _product(
    function: Callable[..., Value], finish: Callable[[NodeCall, Part, Sequence[Value]], Value] = _as_it_is
) -> PartialResult:
    return PartialResult(lambda call, inputs, at: (function(call, *inputs),), _by("add"), finish)


def _quantized(
    call: NodeCall, a: Value, _s: Value, a_zero: Value, b: Value, _t: Value, b_zero: Value, *_: Value
) -> Value:
    return integer_product(call, a, b, a_zero, b_zero)


PARTIAL_RESULTS: dict[str, PartialResult] = {
    "ArgMax": _position(largest=True),
    "ArgMin": _position(largest=False),
    "Einsum": _product(CONTRACTIONS["Einsum"]),
    "Gemm": _product(
        lambda call, a, b, c=None: gemm_product(call, a, b),
        lambda call, part, inputs: gemm_of(call, part[0], *inputs[2:]),
    ),
    "MatMul": _product(CONTRACTIONS["MatMul"]),
    "MatMulInteger": _product(integer_product),
    "QLinearMatMul": _product(
        _quantized, lambda call, part, inputs: requantized(part[0], inputs[1], inputs[4], inputs[6], inputs[7])
    ),
    "ReduceL1": _reduction("ReduceL1", "add"),
    "ReduceL2": _reduction("ReduceSumSquare", "add", lambda call, total, inputs: dx.sqrt(total)),
    "ReduceLogSum": _reduction("ReduceSum", "add", lambda call, total, inputs: dx.log(total)),
    "ReduceLogSumExp": _reduction("ReduceLogSumExp", "logaddexp", is_wide=True),
    "ReduceMax": _reduction("ReduceMax", "maximum"),
    "ReduceMean": _reduction("ReduceSum", "add", _divided, is_wide=True),
    "ReduceMin": _reduction("ReduceMin", "minimum"),
    "ReduceProd": _reduction("ReduceProd", "multiply"),
    "ReduceSum": _reduction("ReduceSum", "add"),
    "ReduceSumSquare": _reduction("ReduceSumSquare", "add"),
}
