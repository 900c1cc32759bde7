"""Scripts on arrays of some dozen elements, one element, row or operation after the other: what a library takes for an
operation is all that they take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SMALL_SCRIPTS"]

Host = NDArray[Any]


def _counts(xp: Any, k: Any) -> Any:
    """Count integers, one by one."""
    found = xp.zeros(10, dtype="int64")
    for i in k:
        found[i] += 1
    return found


def _edit_distance(xp: Any, a: Any, b: Any) -> Any:
    n = a.shape[0]
    d = xp.zeros((n + 1, n + 1), dtype="int64")
    d[:, 0] = d[0] = xp.arange(n + 1)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + int(a[i - 1] != b[j - 1]))
    return d


def _primes(xp: Any, given: Any) -> Any:
    """Find the primes below a hundred times the size: Eratosthenes' sieve."""
    n = 100 * given.shape[0]
    is_prime = xp.ones(n, dtype=bool)
    is_prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            is_prime[i * i :: i] = False
    return xp.nonzero(is_prime)[0]


def _gauss_seidel(xp: Any, a: Any, b: Any) -> Any:
    x = xp.zeros_like(b)
    for _ in range(5):
        for i in range(b.shape[0]):
            x[i] = (b[i] - a[i, :i] @ x[:i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


def _gram_schmidt(xp: Any, a: Any) -> Any:
    q = xp.zeros_like(a)
    for i in range(a.shape[0]):
        v = xp.asarray(a[i], copy=True)
        for j in range(i):
            v -= (q[j] @ a[i]) * q[j]
        q[i] = v / xp.sqrt(v @ v)
    return q


def _elimination(xp: Any, given: Any) -> Any:
    """Factorise a matrix into triangles, without pivots."""
    a = xp.asarray(given, copy=True)
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]
    return a


def _clusters(xp: Any, x: Any) -> Any:
    """Find five means, ten times: k-means, which picks by masks."""
    means = x[:5]
    for _ in range(10):
        near = xp.argmin(xp.sum((x[:, None, :] - means[None]) ** 2, axis=-1), axis=1)
        means = xp.stack([xp.mean(x[near == k], axis=0) if (near == k).any() else means[k] for k in range(5)])
    return means


def _heat(xp: Any, given: Any) -> Any:
    u = xp.asarray(given, copy=True)
    for _ in range(50):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def _matrix(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    return (rng.random((n, n)) + n * np.eye(n),)


def _system(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    return (*_matrix(n, rng), rng.random(n))


#: Programs and what makes their operands of a size, by name.
SMALL_SCRIPTS: dict[str, tuple[Callable[..., Any], Callable[[int, np.random.Generator], tuple[Host, ...]]]] = {
    "count one by one": (_counts, lambda n, rng: (rng.integers(0, 10, 10 * n),)),
    "edit distance": (_edit_distance, lambda n, rng: (rng.integers(0, 4, n), rng.integers(0, 4, n))),
    "sieve of primes": (_primes, lambda n, rng: (np.zeros(n),)),
    "Gauss-Seidel": (_gauss_seidel, _system),
    "Gram-Schmidt": (_gram_schmidt, _matrix),
    "elimination": (_elimination, _matrix),
    "k-means": (_clusters, lambda n, rng: (rng.random((20 * n, 2)),)),
    "heat in a rod": (_heat, lambda n, rng: (rng.random(4 * n),)),
}
