"""P3: prefill of transformer blocks as in LLaMA: RMS norm, rotary positions, attention of many heads, gated layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .checks import close
from .inputs import Source, g_at, normal
from .sizes import SIZE
from .workloads import MEMORY, Pin, Workload, _Timed, _Tracked, free, references, timed_params, tracked_params

__all__ = ["BASELINES", "VARIANTS", "TransformerBlock", "TransformerBlockCounts", "workload"]


class Extents(NamedTuple):
    """Batch, sequence, heads, extent of a head, extent of the gated layer, layers."""

    b: int
    s: int
    heads: int
    d: int
    ffn: int
    layers: int


#: By (b, s) at M, then size. At M/8 the extents of weights and the sequence are those at M over sqrt(8).
EXTENTS: dict[str, dict[str, Extents]] = {
    "": {"XS": Extents(2, 8, 4, 4, 12, 2), "S": Extents(2, 64, 4, 16, 172, 2)},
    " b1 s4096": {"M/8": Extents(1, 1448, 32, 44, 3872, 1), "M": Extents(1, 4096, 32, 128, 11008, 1)},
    " b8 s1024": {"M/8": Extents(8, 360, 32, 44, 3872, 1), "M": Extents(8, 1024, 32, 128, 11008, 1)},
    " b4 s4096": {"M/8": Extents(4, 1448, 32, 44, 3872, 1), "M": Extents(4, 4096, 32, 128, 11008, 1)},
}
VARIANTS = {f"{mask}{suffix}": rows for suffix, rows in EXTENTS.items() for mask in ("plain", "causal")}
#: Operands of a layer, in the order of the program.
WEIGHTS = ("gain1", "Wq", "Wk", "Wv", "Wo", "gain2", "W1", "W3", "W2")


# -------------------------------------------------------------------------------------------------------- program


def norm(xp: Any, y: Any, gain: Any) -> Any:
    return y / xp.sqrt(xp.mean(y * y, axis=-1, keepdims=True) + 1e-5) * gain


def angles(s: int, d: int, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Cosine and sine of the angle of each pair at each position, (s, 1, d / 2)."""
    angle = np.arange(s)[:, None, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def rotary(xp: Any, y: Any) -> Any:
    """Pairs of neighbours of the last axis, turned by an angle that grows with the position."""
    b, s, heads, d = y.shape
    cos, sin = angles(s, d, y.dtype)
    even, odd = y[..., 0::2], y[..., 1::2]
    return xp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(b, s, heads, d)


def attention(xp: Any, q: Any, k: Any, v: Any, causal: bool, pin: Pin) -> Any:
    s, d = q.shape[1], q.shape[3]
    scores = pin("scores", xp.einsum("bshd,bthd->bhst", q, k) / math.sqrt(d))
    if causal:
        position = xp.arange(s)
        scores = xp.where(position[:, None] >= position[None, :], scores, -math.inf)
    weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = pin("weights", weights / weights.sum(axis=-1, keepdims=True))
    return pin("heads", xp.einsum("bhst,bthd->bshd", weights, v))


def block(xp: Any, x: Any, weights: Sequence[Any], heads: int, causal: bool, pin: Pin) -> Any:
    gain1, Wq, Wk, Wv, Wo, gain2, W1, W3, W2 = weights
    b, s, features = x.shape
    split = (b, s, heads, features // heads)
    n = pin("n", norm(xp, x, gain1))
    q = pin("q", rotary(xp, (n @ Wq).reshape(split)))
    k = pin("k", rotary(xp, (n @ Wk).reshape(split)))
    v = pin("v", (n @ Wv).reshape(split))
    r = pin("r", x + attention(xp, q, k, v, causal, pin).reshape(b, s, features) @ Wo)
    n = pin("n", norm(xp, r, gain2))
    gate = n @ W1
    hidden = pin("hidden", gate / (1 + xp.exp(-gate)) * (n @ W3))
    return pin("out", r + hidden @ W2)


def prefill(heads: int, causal: bool, xp: Any, x: Any, *weights: Any, pin: Pin = free) -> tuple[Any, ...]:
    for first in range(0, len(weights), len(WEIGHTS)):
        x = block(xp, x, weights[first : first + len(WEIGHTS)], heads, causal, pin)
    return (x,)


# ------------------------------------------------------------------------------------------------------ baselines


def _all_weights(layers: int, cuts: Mapping[str, Any]) -> dict[str, Any]:
    whole = {name: (None,) if name.startswith("gain") else (None, None) for name in WEIGHTS} | dict(cuts)
    return {f"{name}{layer}": cut for layer in range(layers) for name, cut in whole.items()}


def batch(layers: int, axis: str) -> Mapping[str, Any]:
    """Everything is cut along the batch; weights are on every member."""
    states = dict.fromkeys("x n r hidden out".split(), (axis, None, None))
    heads = dict.fromkeys("q k v scores weights heads".split(), (axis, None, None, None))
    return states | heads | _all_weights(layers, {})


def sequence(layers: int, axis: str) -> Mapping[str, Any]:
    """Queries and what follows from them are cut along the sequence; keys, values and weights are on every member."""
    states = dict.fromkeys("x n r hidden out".split(), (None, axis, None))
    queries = dict.fromkeys(("q", "heads"), (None, axis, None, None))
    keys = dict.fromkeys("kv", (None, None, None, None))
    scores = dict.fromkeys(("scores", "weights"), (None, None, axis, None))
    return states | queries | keys | scores | _all_weights(layers, {})


def tensor_parallel(layers: int, axis: str) -> Mapping[str, Any]:
    """Heads and the gated layer are cut, and their weights; residuals are cut along the sequence between them."""
    states = dict.fromkeys(("x", "r", "out"), (None, axis, None)) | {"n": (None, None, None)}
    heads = dict.fromkeys("q k v heads".split(), (None, None, axis, None))
    scores = dict.fromkeys(("scores", "weights"), (None, axis, None, None))
    columns = dict.fromkeys("Wq Wk Wv W1 W3".split(), (None, axis))
    cut = _all_weights(layers, columns | dict.fromkeys(("Wo", "W2"), (axis, None)))
    return states | heads | scores | {"hidden": (None, None, axis)} | cut


BASELINES = {"batch": batch, "sequence": sequence, "heads and ffn": tensor_parallel}


# ------------------------------------------------------------------------------------------------ inputs and checks


def _ones(index: NDArray[Any]) -> NDArray[Any]:
    return np.ones(index.shape)


def _weight(seed: int, index: NDArray[Any]) -> NDArray[Any]:
    return 0.02 * g_at(seed, index)


def _inputs(of: Extents) -> dict[str, Source]:
    features = of.heads * of.d
    shapes = dict.fromkeys(("gain1", "gain2"), (features,)) | dict.fromkeys(("Wq", "Wk", "Wv", "Wo"), (features,) * 2)
    shapes |= {"W1": (features, of.ffn), "W3": (features, of.ffn), "W2": (of.ffn, features)}
    made = {"x": normal(1, (of.b, of.s, features), "f4")}
    seed = 2
    for layer in range(of.layers):
        for name in WEIGHTS:
            is_gain = name.startswith("gain")
            made[f"{name}{layer}"] = Source(shapes[name], "f4", _ones if is_gain else partial(_weight, seed))
            seed += not is_gain
    return made


def _row(of: Extents, x: Source, weights: Sequence[NDArray[Any]], batch: int, t: int, causal: bool) -> NDArray[Any]:
    """The result of one layer at one position, in float64."""
    gain1, Wq, Wk, Wv, Wo, gain2, W1, W3, W2 = weights
    states = x.part(slice(batch, batch + 1)).astype(np.float64)
    seen = t + 1 if causal else of.s
    n = norm(np, states[:, :seen], gain1)
    split = (1, seen, of.heads, of.d)
    k, v = rotary(np, (n @ Wk).reshape(split)), (n @ Wv).reshape(split)
    here = norm(np, states[:, t : t + 1], gain1)
    # Turning depends on the position: the query stands at the end of a sequence of its own.
    alone = np.concatenate([np.zeros((1, t, of.heads * of.d)), here @ Wq], axis=1)
    q = rotary(np, alone.reshape(1, t + 1, of.heads, of.d))[:, t:]
    o = attention(np, q, k, v, False, free).reshape(1, 1, -1)
    r = states[:, t : t + 1] + o @ Wo
    n = norm(np, r, gain2)
    gate = n @ W1
    return (r + (gate / (1 + np.exp(-gate)) * (n @ W3)) @ W2)[0, 0]


def workload(variant: str, size: str = SIZE) -> Workload:
    """Layers with or without a mask."""
    of = VARIANTS[variant][size]
    causal = variant.startswith("causal")
    inputs = _inputs(of)

    def check(results: Sequence[Any]) -> None:
        (out,) = results
        if size not in MEMORY:
            close("out", out, references(made)[0])
            return
        weights = [inputs[f"{name}0"].part().astype(np.float64) for name in WEIGHTS]
        rng = np.random.default_rng(0)
        for place, t in zip(rng.integers(0, of.b, 8).tolist(), rng.integers(0, of.s, 8).tolist(), strict=True):
            close(f"out[{place}, {t}]", out[place, t], _row(of, inputs["x"], weights, place, t, causal))

    scores = 4 * of.b * of.heads * of.s**2
    made = Workload(
        f"P3 transformer block, {variant}",
        partial(prefill, of.heads, causal),
        inputs,
        check,
        baselines={name: partial(cuts, of.layers) for name, cuts in BASELINES.items() if name != "batch" or of.b > 1},
        note=f"scores have {scores / 2**20:.1f} MiB",
    )
    return made


class TransformerBlock(_Timed):
    params = timed_params(["causal"])
    workload = staticmethod(workload)


class TransformerBlockCounts(_Tracked):
    params = tracked_params(["causal"])
    workload = staticmethod(workload)
