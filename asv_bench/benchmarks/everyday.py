"""Everyday programs: loops, short scripts, scripts on small arrays, and single operations on large ones.

They are written against functions of a namespace, so that every library runs the same text, and are what
``python asv_bench/compare.py`` compares. A library takes part as far as it has the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sizes import SIZE, few, of_size
from .small_scripts import SMALL_SCRIPTS
from .systems import IN_PROCESS, System

__all__ = ["PROGRAMS", "Everyday", "Everydays", "operands_of", "ran"]

Host = NDArray[Any]
STEPS = 20


@dataclass(frozen=True, eq=False)
class Everyday:
    """A program and its operands.

    Attributes
    ----------
    group
        ``loops``, ``scripts``, ``small`` or ``operations``: geometric means are taken over each.
    run
        ``run(xp, *operands)``: an array or a tuple of arrays and numbers.
    operands
        ``operands(n, rng)``: host arrays, from the size and a seeded generator.
    extents
        What `n` is, by size of the benchmark; several in one size are rows of their own.
    writes
        Whether it writes into arrays, which JAX, cubed and dask's expressions do not have or do not have cheaply.
    waits
        Whether it asks for values on the way, so that it cannot be compiled as a whole.
    """

    group: str
    run: Callable[..., Any]
    operands: Callable[[int, np.random.Generator], tuple[Host, ...]]
    extents: Mapping[str, tuple[int, ...]]
    writes: bool = False
    waits: bool = False


# --------------------------------------------------------------------------------------------------------- loops


def _jacobi(xp: Any, given: Any) -> Any:
    u = xp.asarray(given, copy=True)
    for _ in range(STEPS):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def _elementwise(xp: Any, x: Any, y: Any) -> Any:
    for _ in range(STEPS):
        x = xp.sqrt(x * x + y * y) - 0.1 * x
    return x


def _two_numbers(xp: Any, x: Any) -> Any:
    total = 0.0
    for _ in range(STEPS):
        total += float(xp.sum(x * x)) + float(xp.max(x + 1))
    return total


def _power(xp: Any, a: Any) -> Any:
    v = a[0]
    for _ in range(STEPS):
        v = a @ v
    return v


def _conjugate_gradients(xp: Any, a: Any, b: Any) -> Any:
    x = xp.zeros_like(b)
    r = p = b
    rr = float(r @ r)
    for _ in range(STEPS):
        ap = a @ p
        alpha = rr / float(p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        before, rr = rr, float(r @ r)
        p = r + (rr / before) * p
    return x


def _shallow_water(xp: Any, *given: Any) -> Any:
    h, u, v = (xp.asarray(x, copy=True) for x in given)
    for _ in range(STEPS):
        u[1:-1, 1:-1] -= 0.1 * (h[1:-1, 2:] - h[1:-1, :-2])
        v[1:-1, 1:-1] -= 0.1 * (h[2:, 1:-1] - h[:-2, 1:-1])
        h[1:-1, 1:-1] -= 0.1 * (u[1:-1, 2:] - u[1:-1, :-2] + v[2:, 1:-1] - v[:-2, 1:-1])
    return h


def _two_fields(xp: Any, *given: Any) -> Any:
    u, v = (xp.asarray(x, copy=True) for x in given)
    total = 0.0
    for _ in range(STEPS):
        u += 0.1 * v
        v -= 0.1 * u
        total += float(xp.sum(u))  # and nobody looks at the other one
    return v, total


def _squares(count: int, scale: float = 1.0) -> Callable[[int, np.random.Generator], tuple[Host, ...]]:
    """Return what makes `count` uniform n x n arrays."""
    return lambda n, rng: tuple(scale * rng.random((n, n)) for _ in range(count))


def _system(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    m = rng.random((n, n))
    return m @ m.T + n * np.eye(n), rng.random(n)


_LOOPS = {"XS": (16,), "S": (16, 128, 256, 512, 1024, 2048)}

# ------------------------------------------------------------------------------------------------------- scripts


def _gaussians(xp: Any, x: Any) -> Any:
    """Expectation maximisation for a mixture of four."""
    n, k = x.shape[0], 4
    mean, var, weight = xp.reshape(xp.arange(8.0), (4, 2)), xp.ones((k,)), xp.full((k,), 0.25)
    for _ in range(10):
        d = xp.sum((x[:, None, :] - mean[None]) ** 2, axis=-1)
        log = xp.log(weight) - d / (2 * var) - xp.log(var)
        r = xp.exp(log - xp.max(log, axis=1, keepdims=True))
        r = r / xp.sum(r, axis=1, keepdims=True)
        w = xp.sum(r, axis=0)
        mean = (r.T @ x) / w[:, None]
        var = xp.sum(r * xp.sum((x[:, None, :] - mean[None]) ** 2, axis=-1), axis=0) / (2 * w)
        weight = w / n
    return mean, var, weight


def _richardson_lucy(xp: Any, image: Any, kernel: Any) -> Any:
    h = xp.fft.fft2(kernel)
    u = xp.full_like(image, 0.5)
    for _ in range(10):
        blurred = xp.real(xp.fft.ifft2(xp.fft.fft2(u) * h))
        u = u * xp.real(xp.fft.ifft2(xp.fft.fft2(image / (blurred + 1e-9)) * xp.conj(h)))
    return u


def _life(xp: Any, grid: Any) -> Any:
    for _ in range(STEPS):
        near = sum(xp.roll(xp.roll(grid, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        grid = ((near == 3) | ((grid == 1) & (near == 2))).astype("int32")
    return grid


def _poisson(xp: Any, f: Any) -> Any:
    k = xp.fft.fftfreq(f.shape[0])
    squares = k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2
    return xp.real(xp.fft.ifftn(xp.fft.fftn(f) / xp.where(squares == 0, 1.0, squares)))


def _bodies(xp: Any, p: Any) -> Any:
    v = xp.zeros_like(p)
    for _ in range(5):
        d = p[None] - p[:, None]
        r = xp.sum(d**2, axis=-1) + 1e-3
        v = v + 1e-3 * xp.sum(d / (r * xp.sqrt(r))[..., None], axis=1)
        p = p + 1e-3 * v
    return p


def _blocked_lu(xp: Any, given: Any) -> Any:
    a = xp.asarray(given, copy=True)
    n = a.shape[0]
    b = n // 10
    for k in range(0, n, b):
        e = k + b
        inverse = xp.linalg.inv(a[k:e, k:e])
        a[e:, k:e] = a[e:, k:e] @ inverse
        a[e:, e:] -= a[e:, k:e] @ a[k:e, e:]
    return a


def _points(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    return (rng.standard_normal((n, 2)) + 3 * rng.integers(0, 4, (n, 1)),)


def _image(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    kernel = np.zeros((n, n))
    kernel[:5, :5] = 1 / 25
    return rng.random((n, n)), kernel


# ---------------------------------------------------------------------------------------------------- operations


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def _halvings(xp: Any, x: Any, y: Any) -> Any:
    for _ in range(STEPS):
        x = x * 0.5 + y
    return x


def _rolling_mean(xp: Any, x: Any) -> Any:
    n = x.shape[1] - 7
    return sum(x[:, k : k + n] for k in range(8)) / 8


def _zonal(xp: Any, x: Any) -> Any:
    zonal = xp.mean(x, axis=1, keepdims=True)
    return zonal, x - zonal


#: One operand, two, or integers below 1000; waits: those whose result's shape is a matter of the values.
_ONE: dict[str, Callable[..., Any]] = {
    "sum": lambda xp, x: xp.sum(x),
    "mean, axis 0": lambda xp, x: xp.mean(x, axis=0),
    "var, axis 0": lambda xp, x: xp.var(x, axis=0),
    "max, axis 1": lambda xp, x: xp.max(x, axis=1),
    "argmax": lambda xp, x: xp.argmax(x),
    "argmax, axis 1": lambda xp, x: xp.argmax(x, axis=1),
    "mean of x > 0": lambda xp, x: xp.mean(x > 0),
    "cumsum, axis 1": lambda xp, x: xp.cumsum(x, axis=1),
    "diff, axis 1": lambda xp, x: xp.diff(x, axis=1),
    "sort, axis 1": lambda xp, x: xp.sort(x, axis=1),
    "x.T @ x": lambda xp, x: x.T @ x,
    "x + x.T": lambda xp, x: x + x.T,
    "softmax": _softmax,
    "rolling mean of 8": _rolling_mean,
    "zonal mean and anomaly": _zonal,
    "histogram": lambda xp, x: xp.histogram(x, bins=100, range=(-5.0, 5.0))[0],
    "rfft, axis 1": lambda xp, x: xp.fft.rfft(x, axis=1),
}
_TWO: dict[str, Callable[..., Any]] = {
    "sqrt(x*x + y*y) * 2 - x": lambda xp, x, y: xp.sqrt(x * x + y * y) * 2 - x,
    "sum((x - y)**2)": lambda xp, x, y: xp.sum((x - y) ** 2),
    "20 times x*0.5 + y": _halvings,
    "where(x > 0, x, y)": lambda xp, x, y: xp.where(x > 0, x, y),
    "x @ y": lambda xp, x, y: x @ y,
    "concatenate": lambda xp, x, y: xp.concatenate([x, y]),
}


#: Of arrays of few long rows: what is slow where slices, or copies, are cut for squares.
_LONG: dict[str, Callable[..., Any]] = {
    "std, axis 0": lambda xp, x: x.std(axis=0),
    "argmax, axis 0": lambda xp, x: xp.argmax(x, axis=0),
    "transposed, max of short rows": lambda xp, x: (x.T + 1).max(axis=0),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=0),
    "pad": lambda xp, x: xp.pad(x, 1),
}


def _long_rows(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    return (rng.standard_normal((n // 40 + 1, 40 * n)),)


def _normals(count: int) -> Callable[[int, np.random.Generator], tuple[Host, ...]]:
    return lambda n, rng: tuple(rng.standard_normal((n, n)) for _ in range(count))


def _grid_of_life(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    return ((rng.random((n, n)) < 0.3).astype("i4"),)


def _diagonal(n: int, rng: np.random.Generator) -> tuple[Host, ...]:
    return (rng.random((n, n)) + n * np.eye(n),)


_SCRIPTS: dict[str, Everyday] = {
    "mixture of Gaussians": Everyday(
        "scripts", _gaussians, _points, {"XS": (100,), "quick": (20_000,), "S": (200_000,)}
    ),
    "Richardson-Lucy": Everyday("scripts", _richardson_lucy, _image, {"XS": (16,), "quick": (128,), "S": (512,)}),
    "game of life": Everyday("scripts", _life, _grid_of_life, {"XS": (16,), "S": (500,)}),
    "Poisson solver, 3-D FFT": Everyday(
        "scripts", _poisson, lambda n, rng: (rng.random((n, n, n)),), {"XS": (8,), "quick": (32,), "S": (96,)}
    ),
    "n-body": Everyday(
        "scripts", _bodies, lambda n, rng: (rng.random((n, 3)),), {"XS": (20,), "quick": (200,), "S": (800,)}
    ),
    "blocked LU": Everyday("scripts", _blocked_lu, _diagonal, {"XS": (20,), "S": (600,)}, writes=True),
}


def _operation(run: Callable[..., Any], operands: Any, group: str = "operations", **how: bool) -> Everyday:
    return Everyday(group, run, operands, {"XS": (64,), "quick": (1000,), "S": (1000, 4000)}, **how)


PROGRAMS: dict[str, Everyday] = {
    "Jacobi in place": Everyday("loops", _jacobi, _squares(1), _LOOPS, writes=True),
    "sqrt(x*x + y*y) - 0.1*x": Everyday("loops", _elementwise, _squares(2), _LOOPS),
    "two numbers": Everyday("loops", _two_numbers, _squares(1), _LOOPS, waits=True),
    "v = A @ v": Everyday("loops", _power, lambda n, rng: (rng.random((n, n)) / n,), _LOOPS),
    "conjugate gradients": Everyday("loops", _conjugate_gradients, _system, _LOOPS, waits=True),
    "shallow water": Everyday("loops", _shallow_water, _squares(3), _LOOPS, writes=True),
    "two fields": Everyday("loops", _two_fields, _squares(2), _LOOPS, writes=True, waits=True),
    **_SCRIPTS,
    **{
        name: Everyday("small", run, operands, {"XS": (6,), "S": (25,)}, writes=True, waits=True)
        for name, (run, operands) in SMALL_SCRIPTS.items()
    },
    **{name: _operation(run, _normals(1)) for name, run in _ONE.items()},
    **{name: _operation(run, _normals(2)) for name, run in _TWO.items()},
    **{name: _operation(run, _long_rows, "long rows") for name, run in _LONG.items()},
    "bincount": _operation(
        lambda xp, k: xp.bincount(k, minlength=1000), lambda n, rng: (rng.integers(0, 1000, n * n),), waits=True
    ),
    "take rows": _operation(
        lambda xp, x, k: xp.take(x, k, axis=0), lambda n, rng: (rng.random((n, n)), rng.permutation(n))
    ),
}


@cache
def arrays_of(program: Everyday) -> Any:
    """Return the program with the arrays among its results: what a system starts. Numbers are there by then."""

    def run(xp: Any, *operands: Any) -> tuple[Any, ...]:
        made = program.run(xp, *operands)
        return tuple(x for x in (made if isinstance(made, tuple) else (made,)) if type(x) is not float)

    run.waits = program.waits or program.writes  # type: ignore[attr-defined]
    return run


def operands_of(program: Everyday, n: int, system: System, n_workers: int | None = None) -> list[Any]:
    """Return the operands of a program, placed in a system; the same for all of them. With a number of workers, a block
    of rows lies at each of these.
    """
    operands = program.operands(n, np.random.default_rng(0))
    if n_workers is None:
        return [system.put(x) for x in operands]
    found = [system.spread(x, n_workers) for x in operands]
    system.finish(*found)
    return found


def ran(program: Everyday, system: System, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arrays that a program makes, computed."""
    made = system.start(arrays_of(program), operands)
    system.finish(*made)
    return made


class Everydays:
    """asv: times and peak memory of every program on the libraries that run in one process."""

    params = (
        few(PROGRAMS, 8),
        [SIZE],
        ["numpy", "distarray"] if SIZE == "XS" else list(IN_PROCESS),
    )
    param_names = ("program", "size", "system")
    timeout = 600

    def setup(self, program: str, size: str, system: str) -> None:
        self.program, self.system = PROGRAMS[program], IN_PROCESS[system]
        self.operands = operands_of(self.program, of_size(self.program.extents, size)[-1], self.system)
        try:
            ran(self.program, self.system, self.operands)
        except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
            raise NotImplementedError from error  # asv's word for: this library does not have it

    def time_run(self, program: str, size: str, system: str) -> None:
        ran(self.program, self.system, self.operands)

    def peakmem_run(self, program: str, size: str, system: str) -> None:
        ran(self.program, self.system, self.operands)
