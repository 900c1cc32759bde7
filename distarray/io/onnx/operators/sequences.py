"""Sequences are lists of values, and optionals None or what they hold: nothing of them runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, array_of, ints

dx: Any = namespace()


def _place(call: NodeCall, sequence: list[Value], position: Value, *, is_new: bool) -> int:
    n = len(sequence)
    at = (n if is_new else n - 1) if position is None else ints(position)[0]
    if not -n <= at < n + is_new:
        raise ValueError(f"{call}: position {at} is not in a sequence of {n}")
    return at + n if at < 0 else at


def _insert(call: NodeCall, sequence: list[Value], value: Value, position: Value = None) -> Value:
    at = _place(call, sequence, position, is_new=True)
    return [*sequence[:at], value, *sequence[at:]]


def _erase(call: NodeCall, sequence: list[Value], position: Value = None) -> Value:
    at = _place(call, sequence, position, is_new=False)
    return sequence[:at] + sequence[at + 1 :]


def _concat(call: NodeCall, sequence: list[Value]) -> Value:
    return (dx.stack if call["new_axis"] else dx.concat)(sequence, axis=call["axis"])


def _split(call: NodeCall, x: Value, sizes: Value = None) -> Value:
    axis, x = call["axis"], array_of(x)
    n = x.shape[axis]
    given = [1] if sizes is None else ints(sizes)
    each = given[0]
    if sizes is None or not sizes.ndim:  # pieces of one size, and the rest
        given = [min(each, n - first) for first in range(0, n, each)]
    parts = dx.split(x, np.cumsum(given)[:-1].tolist(), axis=axis)
    if sizes is None and not call["keepdims"]:
        parts = [dx.squeeze(part, axis=axis) for part in parts]
    return [*parts]


def _held(call: NodeCall, value: Value) -> Value:
    if value is None:
        raise ValueError(f"{call}: the optional has no value")
    return value


ROWS: dict[str, Row] = {
    "ConcatFromSequence": _concat,
    "Optional": lambda call, value=None: (value,),
    "OptionalGetElement": lambda call, value=None: (_held(call, value),),
    "OptionalHasElement": lambda call, value=None: np.asarray(value is not None),
    "SequenceAt": lambda call, sequence, at: sequence[_place(call, sequence, at, is_new=False)],
    "SequenceConstruct": lambda call, *values: [*values],
    "SequenceEmpty": lambda call: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda call, sequence: np.asarray(len(sequence), np.int64),
    "SplitToSequence": _split,
}
