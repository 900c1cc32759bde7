"""Linear algebra on matrices that are cut on both axes, against numpy on whole ones.

What is claimed are residuals (`residuals`): all within ``50 * sqrt(n) * eps``, values within 1e-9 of numpy's. Times are
tracked as ratios to numpy's without a goal: BLAS decides them, and numpy has all of its threads for one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import g
from .ratios import Ratio, interleaved, ratio
from .sizes import SIZE, few, of_size
from .systems import SYSTEMS, System

__all__ = ["GRIDS", "PROGRAMS", "LinearAlgebra", "LinearAlgebraRatio", "bound", "inputs", "operands", "residuals"]

Array = NDArray[Any]

#: Rows of the square matrix.
ROWS = {"XS": 64, "S": 2048, "M": 32768}
#: Parts of the rows and of the columns; those of the second grid are uneven.
GRIDS = {"4x4": (4, 4), "3x5": (3, 5)}
#: Other systems have only some of the functions, and want other cuts for them.
COMPARED = ("numpy", "distarray")

#: A (n, n), S (n, n) positive definite, T (8n, n/8), b (n, 16), c (8n, 16)
PROGRAMS: dict[str, Callable[..., Any]] = {
    "qr": lambda xp, A, S, T, b, c: xp.linalg.qr(A),
    "qr tall": lambda xp, A, S, T, b, c: xp.linalg.qr(T),
    "svd tall": lambda xp, A, S, T, b, c: xp.linalg.svd(T, full_matrices=False),
    "svdvals": lambda xp, A, S, T, b, c: xp.linalg.svdvals(A),
    "eigh": lambda xp, A, S, T, b, c: xp.linalg.eigh(S),
    "cholesky": lambda xp, A, S, T, b, c: xp.linalg.cholesky(S),
    "solve": lambda xp, A, S, T, b, c: xp.linalg.solve(A, b),
    "lstsq tall": lambda xp, A, S, T, b, c: xp.linalg.lstsq(T, c, rcond=None),
    "inv": lambda xp, A, S, T, b, c: xp.linalg.inv(S),
    "slogdet": lambda xp, A, S, T, b, c: xp.linalg.slogdet(S),
    "det": lambda xp, A, S, T, b, c: xp.linalg.det(S[:64, :64]),
}


def inputs(size: str) -> tuple[Array, ...]:
    """The operands of all programs, on the host."""
    n = of_size(ROWS, size)
    a = g(1, (n, n))
    return a, a @ a.T / n + np.eye(n), g(2, (8 * n, n // 8)), g(3, (n, 16)), g(4, (8 * n, 16))


def operands(system: System, size: str, grid: str) -> tuple[Any, ...]:
    """The operands of a system, those of distarray cut into this grid and placed."""
    if system.name != "distarray":
        return tuple([system.put(x) for x in inputs(size)])
    dx = system.xp
    parts = GRIDS[grid]
    team = dx.Team(parts, ("R", "C"))

    def placed(x: Array) -> Any:
        bounds = [None if grid == "4x4" else _uneven(n, k) for n, k in zip(x.shape, parts, strict=True)]
        cut = dx.Sharding(team.mesh, (("R",), ("C",)), (), tuple(bounds))
        return (dx.asarray(x, team=team, sharding=cut) + 0).persist()

    return tuple(map(placed, inputs(size)))


def _uneven(n: int, k: int) -> tuple[int, ...]:
    """Boundaries of `k` parts with sizes about 1 : 2 : 3 ..."""
    return tuple([n * i * (i + 1) // (k * (k + 1)) for i in range(k + 1)])


def _forced(system: System, result: Any) -> Any:
    if isinstance(result, tuple) and system.name == "distarray":
        system.xp.persist(*result)
        return result
    return system.force(result)


def run(system: System, program: str, given: Sequence[Any]) -> Any:
    """The results of a program, all of them computed."""
    return _forced(system, PROGRAMS[program](system.xp, *given))


# ------------------------------------------------------------------------------------------------------- checks


def bound(n: int) -> float:
    """What residuals may be."""
    return float(50 * np.sqrt(n) * np.finfo(np.float64).eps)


def residuals(program: str, given: Sequence[Array], result: Any) -> dict[str, tuple[float, float]]:
    """How far off results are, and how far they may be; values are compared with numpy's."""
    a, s, t, b, c = given
    found = [np.asarray(part) for part in result] if isinstance(result, tuple) else [np.asarray(result)]
    limit = bound(len(a))
    if program in ("qr", "qr tall"):
        (q, r), x = found, a if program == "qr" else t
        return {"A - QR": (_rel(q @ r, x), limit), "Q^T Q - I": (_off_identity(q.T @ q), limit)}
    if program == "svd tall":
        u, values, vh = found
        return {"T - USV": (_rel((u * values) @ vh, t), limit), "U^T U - I": (_off_identity(u.T @ u), limit)}
    if program == "eigh":
        values, v = found
        return {"A V - V L": (_norm(s @ v - v * values) / _norm(s), limit)}
    if program == "cholesky":
        return {"S - L L^T": (_rel(found[0] @ found[0].T, s), limit)}
    if program == "solve":
        return {"A x - b": (_norm(a @ found[0] - b) / (_norm(a) * _norm(found[0])), limit)}
    if program == "inv":
        return {"S X - I": (_off_identity(s @ found[0]), limit)}
    expected = PROGRAMS[program](np, a, s, t, b, c)
    parts = expected if isinstance(expected, tuple) else (expected,)
    return {f"value {i}": (_rel(x, y), 1e-9) for i, (x, y) in enumerate(zip(found, parts, strict=True)) if x.size}


def _norm(x: Any) -> float:
    return float(np.linalg.norm(x))


def _rel(x: Any, y: Any) -> float:
    return _norm(x - np.asarray(y)) / _norm(y)


def _off_identity(x: Array) -> float:
    return float(np.linalg.norm(x - np.eye(len(x)), 2))


# --------------------------------------------------------------------------------------------------- benchmarks


def ratio_to_numpy(program: str, grid: str, size: str = SIZE, rounds: int = 3) -> Ratio:
    """Time of distarray over that of numpy."""

    def prepared(system: System) -> Callable[[], object]:
        given = operands(system, size, grid)
        return lambda: run(system, program, given)

    taken = interleaved({name: prepared(SYSTEMS[name]) for name in COMPARED}, rounds)
    return ratio(taken["distarray"], taken["numpy"])


class LinearAlgebra:
    params = ([SIZE], few(PROGRAMS, 8), list(COMPARED), list(GRIDS))
    param_names = ("size", "program", "system", "grid")
    timeout = 600

    def setup(self, size: str, program: str, system: str, grid: str) -> None:
        if system == "numpy" and grid != "4x4":
            raise NotImplementedError  # asv's word for: numpy has no grid, one run of it is enough
        self.system = SYSTEMS[system]
        self.given = operands(self.system, size, grid)

    def time_run(self, size: str, program: str, system: str, grid: str) -> None:
        run(self.system, program, self.given)

    def peakmem_run(self, size: str, program: str, system: str, grid: str) -> None:
        run(self.system, program, self.given)


class LinearAlgebraRatio:
    params = ([SIZE], few(PROGRAMS, 8), list(GRIDS))
    param_names = ("size", "program", "grid")
    timeout = 600

    def track_ratio_to_numpy(self, size: str, program: str, grid: str) -> float:
        return ratio_to_numpy(program, grid, size).median

    def track_tasks(self, size: str, program: str, grid: str) -> int:
        return self._counted(size, program, grid).tasks

    def track_bytes_moved(self, size: str, program: str, grid: str) -> int:
        return self._counted(size, program, grid).bytes_moved

    def _counted(self, size: str, program: str, grid: str) -> Any:
        system = SYSTEMS["distarray"]
        given = operands(system, size, grid)
        with system.xp.testing.counting() as counted:
            run(system, program, given)
        return counted
