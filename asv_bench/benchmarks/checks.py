"""Checks of results: whole against numpy where they are small, seeded samples and probes where they are not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import Source, u_at

__all__ = ["LIMITS", "close", "matvec", "probe", "rel", "rows", "same_boxes", "sampled_boxes"]

Array = NDArray[Any]

#: What `rel` may be, by dtype of the result.
LIMITS = {"float32": 1e-5, "float64": 1e-11}
#: Seeds of the vectors of a probe.
PROBES = (90, 91, 92)
#: Bytes in float64 of what is recomputed at a time.
_AT_A_TIME = 1 << 26


def rel(found: Any, reference: Any) -> float:
    """Frobenius norm of the difference over that of the reference."""
    expected = np.asarray(reference, np.float64)
    return float(np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected))


def close(what: str, found: Any, reference: Any, limit: float | None = None) -> None:
    """Raise AssertionError unless a result is near its reference; the limit is that of its dtype unless given."""
    value = np.asarray(found)
    if value.shape != np.shape(reference):
        raise AssertionError(f"{what} has the shape {value.shape}, not {np.shape(reference)}")
    allowed = LIMITS[value.dtype.name] if limit is None else limit
    off = rel(value, reference)
    if not off <= allowed:  # a nan is wrong, too
        raise AssertionError(f"{what} is off by {off:.2g}, above {allowed:.2g}")


def _signs(index: NDArray[np.int64]) -> Array:
    vectors = [u_at(seed, index // len(PROBES)) for seed in PROBES]
    return np.sign(np.choose(index % len(PROBES), vectors) - 0.5)


def probe(n: int, dtype: str = "f8") -> Source:
    """Vectors of +-1, to multiply a matrix with that is too large to be compared: the columns of an operand."""
    return Source((n, len(PROBES)), dtype, _signs)


def sampled_boxes(shape: tuple[int, ...], n: int = 8, elements: int = 4096) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most about `elements` elements at seeded places."""
    rng = np.random.default_rng(0)
    side = max(1, int(elements ** (1 / max(1, len(shape)))))
    for _ in range(n):
        starts = [int(rng.integers(0, max(1, extent - side + 1))) for extent in shape]
        yield tuple(slice(lo, min(lo + side, extent)) for lo, extent in zip(starts, shape, strict=True))


def same_boxes(found: Any, source: Source) -> None:
    """Raise AssertionError unless an array has the bits of its source: all up to 64 MiB, else those of samples."""
    boxes = [(slice(None),) * len(source.shape)] if source.nbytes <= _AT_A_TIME else sampled_boxes(source.shape)
    for box in boxes:
        np.testing.assert_array_equal(np.asarray(found[box]), source.part(*box))


def rows(source: Source) -> Iterator[tuple[slice, Array]]:
    """A matrix in float64, some rows at a time."""
    step = max(1, _AT_A_TIME // (8 * source.shape[1]))
    for lo, hi in itertools.pairwise([*range(0, source.shape[0], step), source.shape[0]]):
        yield slice(lo, hi), source.part(slice(lo, hi)).astype(np.float64)


def matvec(source: Source, v: Array) -> Array:
    """A matrix times some vectors, in float64; the matrix is never whole."""
    return np.concatenate([part @ v for _, part in rows(source)])
