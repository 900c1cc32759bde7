"""If, Loop, Scan and SequenceMap: their subgraphs run node by node, as often as values say; and sequences.

A condition or trip count that is not known is computed where it is needed. What the bodies do is deferred. Sequences
are lists of values, and optionals None or what they hold: nothing of them runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array.namespace import namespace
from distarray.io.onnx.operators.call import NodeCall, Row, Value, array_of, dtype_of_element, host, ints
from distarray.io.onnx.operators.movement import split_along

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


def _split(call: NodeCall, x: Value, sizes: Value = None) -> Value:
    axis, given = call["axis"], [1] if sizes is None else ints(sizes)
    if sizes is None or not sizes.ndim:  # pieces of one size, and the rest
        (each,), n = given, x.shape[axis]
        if each < 1:
            raise ValueError(f"{call}: split={each} must be at least 1")
        given = [min(each, n - first) for first in range(0, n, each)]
    parts = split_along(call, x, given)
    if sizes is None and not call["keepdims"]:
        parts = [dx.squeeze(part, axis=axis) for part in parts]
    return parts


def _held(call: NodeCall, value: Value) -> Value:
    if value is None:
        raise ValueError(f"{call}: the optional has no value")
    return value


def _is_true(value: Value) -> bool:
    return bool(host(value).reshape(-1)[0])


def _loop(call: NodeCall, trips: Value, condition: Value, *state: Value) -> Value:
    body = call["body"]
    limit = None if trips is None else ints(trips)[0]
    n = len(state)
    carried = list(state)
    rounds: list[list[Value]] = []
    goes_on = condition is None or _is_true(condition)
    i = 0
    while goes_on and (limit is None or i < limit):
        keeps, *made = call.scope.inner(body, (np.asarray(i, np.int64), np.asarray(True), *carried))
        carried = made[:n]
        rounds.append(made[n:])
        goes_on = _is_true(keeps)
        i += 1
    return (*carried, *(_stacked(rounds, k, 0, info) for k, info in enumerate(body.output[1 + n :])))


def _stacked(rounds: list[list[Value]], k: int, axis: int, info: Any) -> Value:
    """Return the results number `k` of all rounds beside each other; without a round, an array without elements of the
    type that the body promises.
    """
    if rounds:
        return dx.stack([made[k] for made in rounds], axis=axis)
    kind = info.type.tensor_type
    extents = [d.dim_value for d in kind.shape.dim]
    extents.insert(axis if axis >= 0 else axis + len(extents) + 1, 0)
    return dx.zeros(tuple(extents), dtype=dtype_of_element(kind.elem_type, f"output {info.name!r}"))


def _batched_scan(call: NodeCall, lengths: Value, *inputs: Value) -> Value:
    """Run Scan of opset 8: each batch by itself, and of its own length."""
    n_state = len(inputs) - call["num_scan_inputs"]
    batches = []
    for b in range(inputs[0].shape[0]):
        own = [v[b] for v in inputs]
        if lengths is not None:
            n = ints(lengths)[b]
            own = [*own[:n_state], *(v[:n] for v in own[n_state:])]
        batches.append(_scan_all(call, own))
    return tuple(dx.stack(parts) for parts in zip(*batches))


def _scan_all(call: NodeCall, inputs: Any) -> Value:
    body = call["body"]
    n_scanned = call["num_scan_inputs"]
    n_state = len(inputs) - n_scanned
    n_outputs = len(body.output) - n_state
    # What opset 8 calls the directions of its inputs.
    backwards_in = call["scan_input_directions"] or call["directions"] or [0] * n_scanned
    axes_in, axes_out = call["scan_input_axes"] or [0] * n_scanned, call["scan_output_axes"] or [0] * n_outputs
    backwards_out = call["scan_output_directions"] or [0] * n_outputs
    state, read = list(inputs[:n_state]), [array_of(v) for v in inputs[n_state:]]
    read = [dx.moveaxis(v, axis, 0) for v, axis in zip(read, axes_in)]
    lengths = {v.shape[0] for v in read}
    if len(lengths) != 1:
        raise ValueError(f"{call}: the scanned axes have {sorted(lengths)} elements, and must have equally many")
    (n,) = lengths
    rounds: list[list[Value]] = []
    for i in range(n):
        rows_in = [v[n - 1 - i if back else i] for v, back in zip(read, backwards_in)]
        made = call.scope.inner(body, (*state, *rows_in))
        state = made[:n_state]
        rounds.append(made[n_state:])
    results = [
        _stacked(rounds[::-1] if back else rounds, k, axis, info)
        for k, (back, axis, info) in enumerate(zip(backwards_out, axes_out, body.output[n_state:]))
    ]
    return (*state, *results)


def _sequence_map(call: NodeCall, sequence: list[Value], *others: Value) -> Value:
    rounds = [
        call.scope.inner(call["body"], (value, *(o[i] if isinstance(o, list) else o for o in others)))
        for i, value in enumerate(sequence)
    ]
    return tuple([made[k] for made in rounds] for k in range(len(call["body"].output)))


ROWS: dict[str, Row] = {
    "ConcatFromSequence": lambda call, values: (dx.stack if call["new_axis"] else dx.concat)(values, axis=call["axis"]),
    "If": lambda call, x: tuple(call.scope.inner(call["then_branch" if _is_true(x) else "else_branch"], ())),
    "Loop": _loop,
    "Optional": lambda call, value=None: (value,),
    "OptionalGetElement": lambda call, value=None: (_held(call, value),),
    "OptionalHasElement": lambda call, value=None: np.asarray(value is not None),
    "Scan": lambda call, *inputs: _batched_scan(call, *inputs) if call.opset < 9 else _scan_all(call, inputs),
    "SequenceAt": lambda call, sequence, at: sequence[_place(call, sequence, at, is_new=False)],
    "SequenceConstruct": lambda call, *values: [*values],
    "SequenceEmpty": lambda call: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda call, sequence: np.asarray(len(sequence), np.int64),
    "SequenceMap": _sequence_map,
    "SplitToSequence": _split,
}
