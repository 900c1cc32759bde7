"""P4: softmax attention, plain and causal, of many heads and of one; whether the scores are ever formed as a whole."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import close
from .inputs import Source, g_at
from .sizes import SIZE
from .workloads import (
    DISTRIBUTED,
    MEMORY,
    PARTS,
    Workload,
    _Timed,
    _Tracked,
    on_members,
    place,
    references,
    run,
    timed_params,
    tracked_params,
)

__all__ = ["VARIANTS", "Attention", "AttentionCounts", "AttentionMemory", "workload"]

#: (b, h, s, d); one head is (s, d). At M/8 the scores are an eighth of those at M.
SHAPES = {
    "XS": (1, 2, 32, 8),
    "S": (1, 4, 256, 32),
    "G": (1, 8, 8192, 128),
    "M/8": (1, 8, 5792, 128),
    "M": (1, 8, 16384, 128),
}
#: "large" has queries of a hundred times the size: exp overflows unless the largest score is taken off.
VARIANTS = {
    f"{mask}{heads}{magnitude}": {size: shape[2:] if heads else shape for size, shape in SHAPES.items()}
    for heads in ("", ", one head")
    for mask in ("plain", "causal")
    for magnitude in ("", ", large")
}


def attention(causal: bool, xp: Any, Q: Any, K: Any, V: Any) -> tuple[Any, ...]:
    scores = Q @ xp.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
    if causal:
        position = xp.arange(Q.shape[-2])
        scores = xp.where(position[:, None] >= position[None, :], scores, -math.inf)
    weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ V,)


def _scaled(seed: int, scale: float, index: NDArray[Any]) -> NDArray[Any]:
    return scale * g_at(seed, index)


def _check_rows(result: Any, Q: Source, K: Source, V: Source, causal: bool) -> None:
    """64 seeded rows, all together: single precision says little of one whose largest scores are hundreds and near."""
    rng = np.random.default_rng(0)
    *lead, s, d = Q.shape
    found, expected = [], []
    for _ in range(64):
        head = tuple(int(rng.integers(0, n)) for n in lead)
        t = int(rng.integers(0, s))
        box = tuple(slice(i, i + 1) for i in head)
        seen = slice(0, t + 1) if causal else slice(None)
        query = Q.part(*box, slice(t, t + 1)).astype(np.float64).reshape(d)
        keys = K.part(*box, seen).astype(np.float64).reshape(-1, d)
        values = V.part(*box, seen).astype(np.float64).reshape(-1, d)
        scores = keys @ query / math.sqrt(d)
        weights = np.exp(scores - scores.max())
        found.append(np.asarray(result[(*head, t)]))
        expected.append(weights @ values / weights.sum())
    close("64 rows", np.stack(found), np.stack(expected))


def workload(variant: str, size: str = SIZE) -> Workload:
    """Attention of a variant."""
    shape = VARIANTS[variant][size]
    causal = variant.startswith("causal")
    scales = {"Q": 100.0 if variant.endswith("large") else 1.0, "K": 1.0, "V": 1.0}
    inputs = {
        name: Source(shape, "f4", partial(_scaled, seed, scale)) for seed, (name, scale) in enumerate(scales.items(), 1)
    }

    def check(results: Sequence[Any]) -> None:
        if size in MEMORY:
            _check_rows(results[0], *inputs.values(), causal)
        else:
            close("O", results[0], references(made)[0])

    made = Workload(
        f"P4 attention, {variant}",
        partial(attention, causal),
        inputs,
        check,
        note=f"scores have {scores_nbytes(shape) / 2**20:.1f} MiB",
    )
    return made


def scores_nbytes(shape: Sequence[int]) -> int:
    """Bytes of all scores in single precision."""
    return 4 * math.prod(shape[:-1]) * shape[-2]


def peak_over_scores(variant: str, size: str, system: str, parts: int) -> float:
    """Most bytes that Python saw allocated during a run, over those of all scores: 1 or more if they were formed."""
    chosen = DISTRIBUTED[system]
    with on_members(chosen, parts):
        small = workload(variant, "XS")
        chosen.finish(*run(chosen, small, place(chosen, small, parts)))  # what is imported at first use is none of it
        case = workload(variant, size)
        operands = place(chosen, case, parts)
        tracemalloc.start()
        try:
            results = run(chosen, case, operands)
            chosen.finish(*results)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    return peak / scores_nbytes(case.inputs["Q"].shape)


class Attention(_Timed):
    params = timed_params(["plain", "causal", "causal, one head"])
    workload = staticmethod(workload)


class AttentionCounts(_Tracked):
    params = tracked_params(["plain", "causal, one head"])
    workload = staticmethod(workload)


class AttentionMemory:
    params = timed_params(["plain", "causal, one head"])[:3]
    param_names = ("variant", "size", "system")
    timeout = 600

    def track_peak_over_scores(self, variant: str, size: str, system: str) -> float:
        return peak_over_scores(variant, size, system, PARTS.get(size, (4,))[0])
