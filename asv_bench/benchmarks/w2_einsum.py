"""W2: einsum with results of many axes, and a contraction of three operands in which the path decides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .checks import close, sampled_boxes
from .inputs import normal
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, references, timed_params, tracked_params

__all__ = ["VARIANTS", "Einsum", "EinsumCounts", "workload"]

#: By variant and size: the first extent and D; of c: b, h, q = k, d = e.
VARIANTS: dict[str, dict[str, tuple[int, ...]]] = {
    "a": {"XS": (64, 3), "S": (1024, 8), "M/8": (1024, 27), "M": (1024, 38)},
    "b": {"XS": (64, 2), "S": (1024, 6), "M/8": (1024, 12), "M": (1024, 16)},
    "c": {"XS": (2, 2, 32, 4), "S": (2, 4, 256, 32), "M/8": (4, 16, 1024, 64), "M": (4, 16, 8192, 64)},
}
SUBSCRIPTS = {"a": "aijk,almn->ijklmn", "b": "aijkl,amnop->ijklmnop", "c": "bhqd,bhkd,bhke->bhqe"}


def product(subscripts: str, xp: Any, *operands: Any) -> tuple[Any, ...]:
    return (xp.einsum(subscripts, *operands),)


def consumed_product(subscripts: str, xp: Any, *operands: Any) -> tuple[Any, ...]:
    """For results that are larger than the memory: formed, and summed over the first axis."""
    return (xp.einsum(subscripts, *operands).sum(axis=0),)


def _shapes(variant: str, extents: tuple[int, ...]) -> list[tuple[int, ...]]:
    if variant == "c":
        b, h, s, d = extents
        return [(b, h, s, d)] * 3
    n, side = extents
    return [(n, *(side,) * (3 if variant == "a" else 4))] * 2


def _check_samples(result: Any, A: Any, B: Any) -> None:
    """Boxes of the sum over the first axis of the product of two operands."""
    left = A.part().astype(np.float64).sum(axis=1)  # the sum over i, before the product
    n, split = A.shape[0], left.ndim - 1
    right = B.part().astype(np.float64)
    for box in sampled_boxes(result.shape):
        x, y = left[:, *box[:split]], right[:, *box[split:]]
        expected = (x.reshape(n, -1).T @ y.reshape(n, -1)).reshape(x.shape[1:] + y.shape[1:])
        close(f"block {box}", result[box], expected)


def _check_heads(result: Any, Q: Any, K: Any, V: Any) -> None:
    """Boxes of the product of three operands."""
    for b, h, q, e in sampled_boxes(result.shape):
        queries, keys, values = Q.part(b, h, q), K.part(b, h), V.part(b, h, slice(None), e)
        expected = queries @ (np.swapaxes(keys, -1, -2) @ values)
        close(f"block {(b, h, q, e)}", result[b, h, q, e], expected)


def workload(variant: str, size: str = SIZE) -> Workload:
    """One of the three contractions."""
    shapes = _shapes(variant, VARIANTS[variant][size])
    inputs = {"ABC"[i]: normal(i + 1, shape) for i, shape in enumerate(shapes)}
    is_large = size in MEMORY
    is_consumed = is_large and variant != "c"

    def check(results: Sequence[Any]) -> None:
        if not is_large:
            close("result", results[0], references(made)[0])
        elif variant == "c":
            _check_heads(results[0], *inputs.values())
        else:
            _check_samples(results[0], *inputs.values())

    made = Workload(
        f"W2 einsum {SUBSCRIPTS[variant]}",
        partial(consumed_product if is_consumed else product, SUBSCRIPTS[variant]),
        inputs,
        check,
        note="the result is summed over its first axis, so that it need not be kept" if is_consumed else "",
    )
    return made


class Einsum(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class EinsumCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
