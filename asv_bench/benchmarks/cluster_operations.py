"""Single operations on arrays whose rows lie on the workers of a cluster: what ``compare.py --cluster`` compares.

Operands are placed before the clock starts, a block of rows at each worker; results stay on the workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .everyday import Everyday, Host

__all__ = ["PROGRAMS"]

#: Columns of the operands: 160 MB each at S.
COLUMNS = 1000
ROWS = {"XS": (200,), "quick": (4_000,), "S": (20_000,)}


def _rows(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    columns = min(COLUMNS, n)
    return rng.standard_normal((n, columns)), rng.standard_normal((n, columns))


def _anomalies(xp: Any, x: Any, y: Any) -> Any:
    months = x.reshape(x.shape[0] // 10, 10, x.shape[1])
    return (months - months.mean(axis=0)).std(axis=0)


def _written(xp: Any, x: Any, y: Any) -> Any:
    z = x.copy()
    z[::2] = 0
    return z.sum(axis=0)


def _windows(xp: Any, x: Any, y: Any) -> Any:
    return xp.lib.stride_tricks.sliding_window_view(x, 5, axis=0).mean(axis=-1).sum(axis=0)


#: By group and name; ``(xp, x, y)``, of which the second is not always read.
_OPERATIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "reductions": {
        "sum": lambda xp, x, y: x.sum(),
        "mean, axis 0": lambda xp, x, y: x.mean(axis=0),
        "mean, axis 1": lambda xp, x, y: x.mean(axis=1),
        "std": lambda xp, x, y: x.std(),
        "var, axis 0": lambda xp, x, y: x.var(axis=0),
        "max, axis 1": lambda xp, x, y: x.max(axis=1),
        "argmax, axis 0": lambda xp, x, y: x.argmax(axis=0),
        "any": lambda xp, x, y: (x > 4).any(),
        "nanmean, axis 0": lambda xp, x, y: xp.nanmean(x, axis=0),
        "norm, axis 1": lambda xp, x, y: xp.linalg.norm(x, axis=1),
        "median, axis 1": lambda xp, x, y: xp.median(x, axis=1),
        "histogram": lambda xp, x, y: xp.histogram(x, bins=50, range=(-5.0, 5.0))[0],
        "cumsum, axis 0": lambda xp, x, y: xp.cumsum(x, axis=0),
        "cumsum, axis 1": lambda xp, x, y: xp.cumsum(x, axis=1),
    },
    "elementwise": {
        "chain": lambda xp, x, y: xp.sqrt(x * x + y * y) - 0.1 * x,
        "chain, sum": lambda xp, x, y: (xp.sqrt(x * x + y * y) - 0.1 * x).sum(),
        "where": lambda xp, x, y: xp.where(x > 0, x, y).sum(axis=0),
        "clip": lambda xp, x, y: xp.clip(x, -1, 1).mean(),
        "standardised": lambda xp, x, y: ((x - x.mean(axis=0)) / x.std(axis=0)).sum(axis=1),
        "anomalies": _anomalies,
        "digitize": lambda xp, x, y: xp.digitize(x, np.linspace(-3, 3, 20)).sum(axis=0),
        "isin": lambda xp, x, y: xp.isin(xp.round(x), [1.0, 2.0]).sum(),
    },
    "movement": {
        "concatenate, axis 0": lambda xp, x, y: xp.concatenate([x, y]).sum(axis=0),
        "concatenate, axis 1": lambda xp, x, y: xp.concatenate([x, y], axis=1).sum(axis=1),
        "stack": lambda xp, x, y: xp.stack([x, y]).max(axis=0),
        "diff, axis 0": lambda xp, x, y: xp.diff(x, axis=0).sum(axis=0),
        "roll": lambda xp, x, y: (xp.roll(x, 1, axis=0) - x).sum(axis=0),
        "reversed": lambda xp, x, y: (x[::-1] + x).sum(axis=0),
        "pad": lambda xp, x, y: xp.pad(x, 1).sum(axis=0),
        "repeat": lambda xp, x, y: xp.repeat(x[:, :100], 3, axis=1).sum(axis=0),
        "coarsen": lambda xp, x, y: x.reshape(x.shape[0] // 10, 10, x.shape[1]).mean(axis=1),
        "gradient": lambda xp, x, y: xp.gradient(x, axis=0).sum(axis=0),
        "sliding windows": _windows,
        "written rows": _written,
    },
    "selection": {
        "slice": lambda xp, x, y: x[10::7, 5:50].sum(axis=0),
        "row": lambda xp, x, y: x[123],
        "rows in another order": lambda xp, x, y: x[np.random.default_rng(1).permutation(x.shape[0])[::4]].sum(axis=0),
        "columns": lambda xp, x, y: x[:, np.arange(0, 100, 3)].sum(axis=0),
        "mask": lambda xp, x, y: x[x > 2].sum(),
    },
    "algebra": {
        "x.T @ x": lambda xp, x, y: x.T @ x,
        "x.T @ (x @ v)": lambda xp, x, y: x.T @ (x @ y[0]),
        "rows by rows": lambda xp, x, y: xp.einsum("ij,ij->i", x, y),
        "tensordot": lambda xp, x, y: xp.tensordot(x, y, axes=((0,), (0,))),
        "covariances": lambda xp, x, y: xp.cov(x[:, :100].T),
        "fft, axis 1": lambda xp, x, y: abs(xp.fft.fft(x[:, :500], axis=1)).sum(axis=0),
        "distances": lambda xp, x, y: ((x[:150, None, :50] - y[None, :150, :50]) ** 2).sum(axis=2),
    },
}

PROGRAMS: dict[str, Everyday] = {
    name: Everyday(group, run, _rows, ROWS) for group, rows in _OPERATIONS.items() for name, run in rows.items()
}
