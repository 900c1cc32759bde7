"""What fits: programs on arrays of 10 to 40 % of all memory of a cluster, what was predicted and what was used.

    python asv_bench/memory_matrix.py                         # all, on 4 workers of 512 MiB with dask's defaults
    python asv_bench/memory_matrix.py sort fft --shares 10,20
    python asv_bench/memory_matrix.py --threads 2 --repeats 4  # each program several times, on what the last one left
    python asv_bench/memory_matrix.py --markdown              # as it stands in docs/reference/measurements.md

A cell is one program on an array of that share. It *holds* if the result is right, or the program was refused before
it ran (``MemoryBudgetError``), no worker was killed, and none counted more bytes of blocks than were predicted for it.
Every cell starts from blocks that lie on the workers, made there, or from an array of this process (*host data*), and
each failure gets a new cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from benchmarks.cluster_meter import limited

import distarray as dx
from distarray.testing import counting, peaks

SHARES = (10, 20, 30, 40)
MiB = 1 << 20
#: Outcomes of cells that hold.
HELD = ("right", "refused")
#: Columns of the operands and results that are looked at.
LOOKED = 5


class Program(NamedTuple):
    """A row of the matrix.

    Parameters
    ----------
    make
        The operand of so many bytes.
    run
        The program; its result is looked at by `check`.
    check
        Raises AssertionError if a result is wrong: by sums, samples, and what is known of the operand.
    """

    make: Callable[[int], Any]
    run: Callable[[Any], Any]
    check: Callable[[Any, Any], None]


def _vector(nbytes: int) -> Any:
    """A permutation of ``0 .. n - 1``: its order and its sums are known."""
    n = nbytes // 8
    step = int(n * 0.618) | 1
    while np.gcd(step, n) != 1:
        step += 2
    return ((dx.arange(n) * step) % n).persist()


def _square(nbytes: int) -> Any:
    n = int((nbytes / 8) ** 0.5) // 8 * 8
    return _laid(dx.arange(n * n, dtype="f8").reshape(n, n), ("rows", None))


def _columns(nbytes: int) -> Any:
    n = int((nbytes / 8) ** 0.5) // 8 * 8
    return _laid(dx.arange(n * n, dtype="f8").reshape(n, n), (None, "rows"))


def _complex(nbytes: int) -> Any:
    n = int((nbytes / 16) ** 0.5) // 8 * 8
    x = dx.arange(n * n, dtype="f8").reshape(n, n)
    return _laid(dx.cos(x * 1e-3) + 1j * dx.sin(x * 1e-3), ("rows", None))


def _laid(x: Any, where: tuple[str | None, ...]) -> Any:
    names = dx.current_team().mesh.names
    return x.reshard(tuple(names if w else None for w in where)).persist()


def _outer(v: Any) -> Any:
    """A product of 16 times the bytes of the operand, of which only sums are kept."""
    n = v.size
    w = dx.arange(16, dtype="f8")
    return (v[:, None] * w[None, :] + 1.0).sum(axis=1) if n else v


def _softmax(x: Any) -> Any:
    e = dx.exp(x * 1e-9 - (x * 1e-9).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


#: Of the windows that slide along rows.
WEIGHTS = np.linspace(0.0, 1.0, 30)


def _filtered(x: Any) -> Any:
    return dx.sliding_window_view(x, WEIGHTS.size, axis=1) @ WEIGHTS


def _elementwise(x: Any) -> Any:
    return dx.sqrt(x * x + 1.0) + dx.sin(x) * 2.0 - x / 3.0


def _same(f: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    """A few rows of the result are what numpy makes of the same rows of the operand."""

    def check(x: Any, y: Any) -> None:
        for i in _places(x.shape[0]):
            np.testing.assert_allclose(np.asarray(y[i]), f(np.asarray(x[i : i + 1]))[0], rtol=1e-6, atol=1e-9)

    return check


def _places(n: int) -> list[int]:
    return [n // 3, n - 1]


def _is_sorted(x: Any, y: Any) -> None:
    n = x.size
    for i in _places(n - LOOKED):
        np.testing.assert_array_equal(np.asarray(y[i : i + LOOKED]), np.arange(i, i + LOOKED))
    assert int(y.sum()) == n * (n - 1) // 2


def _sorts(x: Any, order: Any) -> None:
    n = x.size
    step = int(n * 0.618) | 1
    while np.gcd(step, n) != 1:
        step += 2
    for i in _places(n - LOOKED):
        found = np.asarray(order[i : i + LOOKED])
        np.testing.assert_array_equal(found * step % n, np.arange(i, i + LOOKED))


def _accumulates(x: Any, y: Any) -> None:
    for i in _places(x.size - LOOKED):
        first = int(x[: i + 1].sum())
        assert int(y[i]) == first


def _is_transposed(x: Any, y: Any) -> None:
    for i in _places(x.shape[0]):
        np.testing.assert_array_equal(np.asarray(y[i]), np.asarray(x[:, i]))


def _order(n: int) -> Any:
    return np.random.default_rng(0).permutation(n)


def _is_permuted(x: Any, y: Any) -> None:
    order = _order(x.shape[0])
    for i in _places(x.shape[0]):
        np.testing.assert_array_equal(np.asarray(y[i]), np.asarray(x[int(order[i])]))


def _is_equal(x: Any, y: Any) -> None:
    for i in _places(x.shape[0]):
        np.testing.assert_array_equal(np.asarray(y[i]), np.asarray(x[i]))


def _is_joined(x: Any, y: Any) -> None:
    n = x.shape[0]
    for i in _places(n):
        row = np.asarray(x[i])
        np.testing.assert_array_equal(np.asarray(y[i]), row)
        np.testing.assert_array_equal(np.asarray(y[n + i]), -row)


def _is_fft(x: Any, y: Any) -> None:
    np.testing.assert_allclose(complex(y[0, 0]), complex(x.sum()), rtol=1e-6)
    row = np.fft.fft(np.asarray(x.sum(axis=0)))
    np.testing.assert_allclose(np.asarray(y[0]), row, rtol=1e-6, atol=1e-3 * np.abs(row).max())


def _is_constant(h: Any, y: Any) -> None:
    assert float(y.min()) == float(y.max()) == h.size - 1


def _is_product(x: Any, y: Any) -> None:
    i = x.shape[0] // 3
    row = np.asarray(x[i])
    column = np.asarray(x[:, i])
    np.testing.assert_allclose(float(y[i, i]), row @ column, rtol=1e-9)


def _is_gram(x: Any, y: Any) -> None:
    i = x.shape[0] // 3
    one, other = np.asarray(x[:, i]), np.asarray(x[:, -1])
    np.testing.assert_allclose(float(y[i, -1]), one @ other, rtol=1e-9)


PROGRAMS: dict[str, Program] = {
    "sort": Program(_vector, dx.sort, _is_sorted),
    "argsort": Program(_vector, dx.argsort, _sorts),
    "unique": Program(_vector, dx.unique, _is_sorted),
    "cumsum": Program(_vector, dx.cumsum, _accumulates),
    "reshard rows to columns": Program(_square, lambda x: _wanted(x, (None, "rows")), _is_equal),
    "reshard columns to rows": Program(_columns, lambda x: _wanted(x, ("rows", None)), _is_equal),
    "transpose": Program(_square, lambda x: _wanted(x.T, ("rows", None)), _is_transposed),
    "joined rows": Program(_square, lambda x: dx.concatenate([x, -x]), _is_joined),
    "joined rows, reduced": Program(
        _square, lambda x: dx.concatenate([x, -x]).sum(axis=1), lambda x, y: np.testing.assert_equal(y.sum().item(), 0)
    ),
    "rows in another order": Program(_square, lambda x: x[_order(x.shape[0])], _is_permuted),
    "outer product, reduced": Program(
        lambda n: _vector(n).astype("f8").persist(), _outer, _same(lambda v: 120.0 * v + 16)
    ),
    "fft2": Program(_complex, dx.fft.fft2, _is_fft),
    "matmul": Program(_square, lambda x: x @ x, _is_product),
    "gram matrix": Program(_square, lambda x: x.T @ x, _is_gram),
    "sorted rows": Program(_square, lambda x: dx.sort(-x, axis=1), _same(lambda r: np.sort(-r, axis=1))),
    "softmax": Program(
        _square,
        _softmax,
        _same(
            lambda r: (lambda e: e / e.sum(axis=1, keepdims=True))(
                np.exp(r * 1e-9 - (r * 1e-9).max(axis=1, keepdims=True))
            )
        ),
    ),
    "weighted windows": Program(
        _square,
        _filtered,
        _same(lambda r: np.lib.stride_tricks.sliding_window_view(r, WEIGHTS.size, axis=-1) @ WEIGHTS),
    ),
    "elementwise": Program(_square, _elementwise, _same(lambda r: np.sqrt(r * r + 1) + np.sin(r) * 2 - r / 3)),
    "host data, reversed": Program(
        lambda n: np.arange(n // 8, dtype="f8"), lambda h: dx.asarray(h) + dx.asarray(h)[::-1], _is_constant
    ),
    "host data, reduced": Program(
        lambda n: np.arange(n // 8, dtype="f8"),
        lambda h: dx.asarray(h).sum(),
        lambda h, y: np.testing.assert_allclose(float(y), h.sum(), rtol=1e-12),
    ),
    "random": Program(
        lambda n: n, lambda n: dx.random.default_rng(0).random((n // 8 // 1000, 1000)), lambda n, y: None
    ),
}


def _wanted(x: Any, where: tuple[str | None, ...]) -> Any:
    names = dx.current_team().mesh.names
    return x.reshard(tuple(names if w else None for w in where))


# ------------------------------------------------------------------------------------------------------ a cell


@dataclass(frozen=True)
class Cell:
    """What came of a program on an array of a share of all memory. Bytes are those of the busiest worker.

    Attributes
    ----------
    outcome
        ``right``, ``refused``, or what went wrong.
    predicted, counted
        Bytes of blocks: the most that was predicted, and that a worker counted.
    resident
        Bytes by which the memory in use of a worker grew.
    before
        Bytes of the operand there.
    seconds
        Until the result was there, or refused.
    killed
        Workers that were.
    """

    outcome: str
    predicted: int
    counted: int
    resident: int
    before: int
    seconds: float
    killed: int

    @property
    def holds(self) -> bool:
        """Whether all that was promised is kept."""
        return self.outcome in HELD and not self.killed and self.counted <= 1.01 * self.predicted

    def __str__(self) -> str:
        if self.outcome == "refused":
            return f"refused at {_mib(self.predicted)}, {self.seconds:.1f} s"
        killed = f", {self.killed} killed" * bool(self.killed)
        return (
            f"{self.outcome}{killed}, {_mib(self.counted)} of {_mib(self.predicted)}, resident +{_mib(self.resident)}, "
            f"{self.seconds:.1f} s"
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / MiB:.0f}"


def _trim() -> None:
    from distarray.kernels.buffers import POOL

    POOL.trim()


class Cluster:
    """Worker processes with dask's defaults, nannies included; `renew` replaces them."""

    def __init__(self, n_workers: int, memory: str, threads: int) -> None:
        self.n_workers, self.memory, self.threads = n_workers, memory, threads
        self.cluster: Any = None
        self.renew()

    def renew(self) -> None:
        """Start anew."""
        from distributed import Client, LocalCluster

        self.close()
        self.cluster = LocalCluster(
            n_workers=self.n_workers,
            threads_per_worker=self.threads,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=self.memory,
            silence_logs="CRITICAL",
        )
        self.client = Client(self.cluster)
        self.nbytes = sum(w["memory_limit"] for w in self.client.scheduler_info(n_workers=-1)["workers"].values())

    def close(self) -> None:
        """End all processes."""
        if self.cluster is not None:
            with contextlib.suppress(Exception):  # what is broken may also fail to close
                self.client.close()
            with contextlib.suppress(Exception):
                self.cluster.close()

    def settle(self) -> None:
        """Wait until nothing of the cell before lies on the workers, idle buffers included."""
        while any(self.client.run(lambda dask_worker: dask_worker.state.nbytes > MiB).values()):
            time.sleep(0.05)
        self.client.run(_trim)

    def processes(self) -> set[int]:
        """Of the workers."""
        import os

        return set(self.client.run(os.getpid, on_error="ignore").values())


def measured(cluster: Cluster, program: Program, share: float, seconds: float, repeats: int = 1) -> Cell:
    """One cell, of the last of so many runs; a cluster on which something went wrong is replaced."""
    nbytes = int(cluster.nbytes * share / 100)
    found: dict[Any, Any] = {}
    outcome, predicted, took = "right", 0, 0.0
    before: set[int] = set()
    try:
        with limited(seconds):
            cluster.settle()
            before = cluster.processes()
            x = program.make(nbytes)
            if hasattr(x, "sum"):
                float(abs(x.sum()))
            for _ in range(repeats):
                y = None
                with peaks() as found, counting() as told:
                    start = time.perf_counter()
                    try:
                        y = program.run(x)
                        y = y.persist()
                        float(abs(dx.sum(y)))
                    finally:
                        took = time.perf_counter() - start
                        predicted = told.predicted_peak
                program.check(x, y)
            killed = len(before - cluster.processes())
    except dx.MemoryBudgetError as error:
        outcome, killed = "refused", len(before - cluster.processes())
        predicted = int((re.findall(r"(?:hold|needs at least|needs) (\d+) bytes", str(error)) or [0])[0])
    except Exception as error:
        outcome, killed = (
            f"{type(error).__name__}: {' '.join(str(error).split())[:60]}",
            len(before - cluster.processes()),
        )
    x = y = None
    if killed or outcome not in HELD:
        cluster.renew()
    return Cell(
        outcome,
        predicted,
        max([p.blocks for p in found.values()], default=0),
        max([p.resident for p in found.values()], default=0),
        max([p.before for p in found.values()], default=0),
        took,
        killed,
    )


def matrix(
    names: list[str], shares: list[float], n_workers: int, memory: str, threads: int, seconds: float, repeats: int = 1
) -> Iterator[tuple[str, float, Cell]]:
    """All cells, one after the other."""
    cluster = Cluster(n_workers, memory, threads)
    try:
        for name in names:
            for share in shares:
                yield name, share, measured(cluster, PROGRAMS[name], share, seconds, repeats)
    finally:
        cluster.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only programs with one of these in their names (default: all)")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)), help="per cent of all memory")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="of each worker (default: 1)")
    parser.add_argument("--memory", default="512MiB", help="of each worker (default: 512MiB)")
    parser.add_argument("--seconds", type=float, default=120, help="a cell that takes longer is given up")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each program, one after the other (default: 1)")
    parser.add_argument("--markdown", action="store_true", help="a table for the documentation")
    args = parser.parse_args(argv)
    names = [name for name in PROGRAMS if not args.words or any(word in name for word in args.words)]
    shares = [float(s) for s in args.shares.split(",")]
    cells: dict[str, list[Cell]] = {}
    for name, share, cell in matrix(names, shares, args.workers, args.memory, args.threads, args.seconds, args.repeats):
        cells.setdefault(name, []).append(cell)
        print(f"{'ok ' if cell.holds else 'BAD'} {name}, {share:g} %: {cell}", file=sys.stderr, flush=True)
    if args.markdown:
        print("| program | " + " | ".join(f"{s:g} %" for s in shares) + " |")
        print("|---" * (len(shares) + 1) + "|")
        for name, row in cells.items():
            print(f"| {name} | " + " | ".join(map(str, row)) + " |")
    return 0 if all(cell.holds for row in cells.values() for cell in row) else 1


if __name__ == "__main__":
    sys.exit(main())
