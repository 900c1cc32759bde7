"""P2: a training step of a network with one hidden layer: weights are updated in place and stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import close, rows, sampled_boxes
from .inputs import Source, g_at, u_at
from .sizes import SIZE
from .workloads import MEMORY, Pin, Workload, _Timed, _Tracked, free, references, timed_params, tracked_params

__all__ = ["BASELINES", "VARIANTS", "TrainingStep", "TrainingStepCounts", "workload"]

#: b, f, h, o and the number of steps. At M/8 every extent is that at M over sqrt(8).
EXTENTS = {
    "XS": {"": (16, 64, 32, 24, 2)},
    "S": {"": (64, 512, 256, 300, 3)},
    "M/8": {
        " b128 f8192": (48, 2896, 2896, 5160, 1),
        " b512 f8192": (184, 2896, 2896, 5160, 1),
        " b128 f65536": (48, 23168, 2896, 5160, 1),
        " b512 f65536": (184, 23168, 2896, 5160, 1),
        " b128 f597540": (48, 211264, 2896, 5160, 1),
        " b512 f597540": (184, 211264, 2896, 5160, 1),
    },
    "M": {
        f" b{b} f{f}": (b, f, 8192, 14588, 1) for f in (8192, 65536, 597540) for b in (128, 512)
    },
}  # fmt: skip
#: By name, then size. What is large is single precision.
VARIANTS: dict[str, dict[str, tuple[int, ...]]] = {
    f"{dtype}{suffix}": {size: found[suffix] for size, found in EXTENTS.items() if suffix in found}
    for suffix in dict.fromkeys(suffix for found in EXTENTS.values() for suffix in found)
    for dtype in (("float32",) if suffix else ("float32", "float64"))
}
RATE = 0.01
#: A hidden unit whose input is nearer to 0 than this may be on in one precision and off in the other.
_UNDECIDED = 1e-5


def sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def step(xp: Any, X: Any, T: Any, W1: Any, W2: Any, pin: Pin) -> tuple[Any, ...]:
    Z1 = pin("Z1", X @ W1)
    H = pin("H", xp.maximum(Z1, 0))
    Z2 = pin("Z2", H @ W2)
    dZ2 = pin("dZ2", (sigmoid(xp, Z2) - T) / X.shape[0])
    dW2 = pin("dW2", H.T @ dZ2)
    dH = pin("dH", dZ2 @ W2.T)
    dZ1 = pin("dZ1", dH * (Z1 > 0))
    dW1 = pin("dW1", X.T @ dZ1)
    W1 -= RATE * dW1
    W2 -= RATE * dW2
    return W1, W2, dW1, dW2


def steps(n: int, xp: Any, X: Any, T: Any, W1: Any, W2: Any, pin: Pin = free) -> tuple[Any, ...]:
    """Weights and last gradients."""
    for _ in range(n):
        W1, W2, dW1, dW2 = step(xp, X, T, W1, W2, pin)
    return W1, W2, dW1, dW2


def updated(xp: Any, X: Any, T: Any, W1: Any, W2: Any, pin: Pin = free) -> tuple[Any, ...]:
    """The weights after one step: gradients need not be kept."""
    return step(xp, X, T, W1, W2, pin)[:2]


# ------------------------------------------------------------------------------------------------------ baselines


def data_parallel(axis: str) -> Mapping[str, Any]:
    """Everything with a batch is cut along it; weights and gradients are on every member."""
    return dict.fromkeys("X T Z1 H Z2 dZ2 dH dZ1".split(), (axis, None)) | dict.fromkeys(
        "W1 W2 dW1 dW2".split(), (None, None)
    )


def hidden_parallel(axis: str) -> Mapping[str, Any]:
    """Everything with hidden units is cut along them; batches are on every member."""
    cut = dict.fromkeys("W1 Z1 H dH dZ1 dW1".split(), (None, axis)) | dict.fromkeys(("W2", "dW2"), (axis, None))
    return cut | dict.fromkeys("X T Z2 dZ2".split(), (None, None))


BASELINES = {"data parallel": data_parallel, "hidden parallel": hidden_parallel}


# --------------------------------------------------------------------------------------------------------- inputs


def _sparse(index: NDArray[Any]) -> NDArray[Any]:
    return np.where(u_at(80, index) < 0.05, g_at(1, index), 0.0)


def _targets(index: NDArray[Any]) -> NDArray[Any]:
    return (u_at(2, index) < 0.01).astype(np.float64)


def _weights(seed: int, index: NDArray[Any]) -> NDArray[Any]:
    return 0.02 * g_at(seed, index)


@cache
def _inputs(variant: str, size: str) -> dict[str, Source]:
    b, f, h, o, _ = VARIANTS[variant][size]
    dtype = variant.split()[0]
    return {
        "X": Source((b, f), dtype, _sparse),
        "T": Source((b, o), dtype, _targets),
        "W1": Source((f, h), dtype, partial(_weights, 3)),
        "W2": Source((h, o), dtype, partial(_weights, 4)),
    }


# --------------------------------------------------------------------------------------------------------- checks


@cache
def _activations(variant: str, size: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Z1 and dZ2 in float64; the weights are never whole."""
    X, T, W1, W2 = _inputs(variant, size).values()
    Z1 = sum(X.part(slice(None), part).astype(np.float64) @ values for part, values in rows(W1))
    H = np.maximum(Z1, 0)
    Z2 = sum(H[:, part] @ values for part, values in rows(W2))
    return Z1, (sigmoid(np, Z2) - T.part()) / X.shape[0]


def _check_gradients(variant: str, size: str, new_W1: Any, new_W2: Any) -> None:
    """Boxes of the gradients, as the weights tell: rounding of the weights is allowed for, and nothing else."""
    X, _, W1, W2 = _inputs(variant, size).values()
    Z1, dZ2 = _activations(variant, size)

    def compare(what: str, old: NDArray[Any], new: Any, expected: NDArray[Any]) -> None:
        found = (old.astype(np.float64) - np.asarray(new)) / RATE
        rounding = np.finfo(old.dtype).eps * float(np.linalg.norm(old)) / RATE
        close(what, found, expected, 1e-5 + rounding / float(np.linalg.norm(expected)))

    for box in sampled_boxes(W1.shape):
        Z = Z1[:, box[1]]
        decided = ((np.abs(Z) > _UNDECIDED) | (Z == 0)).all(axis=0)  # 0: no feature is on, in either precision
        dZ1 = (dZ2 @ W2.part(box[1]).astype(np.float64).T) * (Z > 0)
        expected = X.part(slice(None), box[0]).astype(np.float64).T @ dZ1
        compare(f"dW1{box}", W1.part(*box)[:, decided], np.asarray(new_W1[box])[:, decided], expected[:, decided])
    for box in sampled_boxes(W2.shape):
        expected = np.maximum(Z1[:, box[0]], 0).T @ dZ2[:, box[1]]
        compare(f"dW2{box}", W2.part(*box), new_W2[box], expected)


def workload(variant: str, size: str = SIZE) -> Workload:
    """Steps in one precision, for extents that the name says."""
    is_large = size in MEMORY
    n = VARIANTS[variant][size][-1]

    def check(results: Sequence[Any]) -> None:
        if is_large:
            _check_gradients(variant, size, *results)
            return
        for name, found, expected in zip(("W1", "W2", "dW1", "dW2"), results, references(made), strict=True):
            close(name, found, expected)

    made = Workload(
        f"P2 training step, {variant}",
        updated if is_large else partial(steps, n),
        _inputs(variant, size),
        check,
        baselines=BASELINES,
        keeps={"W1": 0, "W2": 1},
        note="needs 64 GiB in all at M, 8 GiB at M/8" if is_large and "597540" in variant else "",
    )
    return made


class TrainingStep(_Timed):
    params = timed_params(["float32", "float64"])
    workload = staticmethod(workload)


class TrainingStepCounts(_Tracked):
    params = tracked_params(["float32"])
    workload = staticmethod(workload)
