"""What ``asv_bench/gpu.py`` measures, each part in a process of its own: distarray beside CuPy, JAX and the card.

Without a GPU the same lines run on arrays so small that their times mean nothing; what cannot be run says so.
"""

from __future__ import annotations

import contextlib
import math
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np


class Note(Protocol):
    """Adds a line to what a part found."""

    def __call__(self, line: str, outcome: str, **more: Any) -> None: ...


class Bench:
    """One device, its arrays, and a clock that waits for it.

    Attributes
    ----------
    is_real
        Whether times mean something.
    cupy
        CuPy, or its stand-in; None on strict.
    """

    def __init__(self, device: str, note: Note) -> None:
        self.is_real = device == "cuda"
        self.device = "strict" if device == "strict" else "cuda"
        self.note = note
        self.cupy: Any = None
        if device != "strict":
            import cupy

            self.cupy = cupy

    def made(self, shape: tuple[int, ...], dtype: str = "f4", *, seed: int = 1, uniform: bool = False) -> Any:
        """Random numbers: an array of CuPy, or of numpy on strict."""
        if self.is_real:
            rng = self.cupy.random.default_rng(seed)
            draw = rng.random if uniform else rng.standard_normal
            return draw(shape, dtype=dtype if dtype in ("f4", "f8") else "f4").astype(dtype, copy=False)
        host = np.random.default_rng(seed)
        values = (host.random(shape) if uniform else host.standard_normal(shape)).astype(dtype)
        return values if self.cupy is None else self.cupy.asarray(values)

    def placed(self, value: Any) -> Any:
        """An array of distarray there."""
        import distarray as dx

        return dx.asarray(value, device=self.device).persist()

    def wait(self) -> None:
        """Wait for all that the device was told to do."""
        if self.cupy is not None:
            self.cupy.cuda.Device().synchronize()

    def seconds(self, run: Callable[[], Any], wait: Callable[[Any], Any] | None = None) -> float:
        """The median of some runs, after one that compiles; each of several turns if one is short."""
        wait = wait or (lambda result: self.wait())
        wait(run())
        wait(run())
        began = time.perf_counter()
        wait(run())
        once = time.perf_counter() - began
        turns = max(1, min(100, int(0.02 / max(once, 1e-7)))) if self.is_real else 1
        taken = []
        for _ in range(7 if self.is_real and once < 0.5 else 3):
            began = time.perf_counter()
            for _ in range(turns):
                result = run()
            wait(result)
            taken.append((time.perf_counter() - began) / turns)
        return sorted(taken)[len(taken) // 2]

    def compare(self, line: str, ours: float, beside: float | None, goal: float, unit: str, what: str) -> None:
        """Note a rate and that of something else; without a GPU no goal is asked for."""
        if beside is None:
            self.note(line, "skipped", ours=f"{ours:.4g} {unit}", why=f"nothing to compare with: {what}")
            return
        ratio = ours / beside
        outcome = "measured" if not self.is_real else "passed" if ratio >= goal else "failed"
        self.note(
            line, outcome, ours=f"{ours:.4g} {unit}", beside=f"{beside:.4g} {unit}", ratio=ratio, goal=goal, why=what
        )

    def near(self, line: str, actual: Any, expected: Any, rtol: float) -> None:
        """Note a result that is wrong, by the error of the largest element; of a large result in its first rows."""
        if actual.size > 1 << 24:
            actual, expected = actual[:64], expected[:64]
        a, e = np.asarray(actual), expected if isinstance(expected, np.ndarray) else self.cupy.asnumpy(expected)
        error = float(np.max(np.abs(a.astype("f8") - e.astype("f8"))) / max(1e-30, np.max(np.abs(e.astype("f8")))))
        if not error <= rtol:
            self.note(f"{line}: values", "failed", why=f"relative error {error:.2g}, allowed {rtol:.2g}")


def machine(bench: Bench) -> None:
    """What the figures were found on."""
    import distarray

    told = f"Python {platform.python_version()}, numpy {np.__version__}, distarray {distarray.__version__}"
    if bench.is_real:
        runtime = bench.cupy.cuda.runtime
        properties = runtime.getDeviceProperties(0)
        name = properties["name"].decode()
        told += f", CuPy {bench.cupy.__version__}, driver {runtime.driverGetVersion()}"
        told += f", {properties['totalGlobalMem'] / 2**30:.0f} GiB, {runtime.getDeviceCount()} GPU"
    else:
        name = "no GPU: strict" if bench.cupy is None else "no GPU: CuPy is played by numpy"
    bench.note(name, "measured", why=told)


def matmul(bench: Bench) -> None:
    """TFLOP/s of products beside CuPy's own."""
    n = 8192 if bench.is_real else 64
    for dtype, rtol in (("f4", 1e-3), ("f2", 2e-2)):
        name = f"matmul {n}, {np.dtype(dtype)}"
        if dtype == "f2" and bench.cupy is None:
            bench.note(name, "skipped", why="not on strict: the standard has no float16")
            continue
        a, b = bench.made((n, n), dtype, seed=1), bench.made((n, n), dtype, seed=2)
        x, y = bench.placed(a), bench.placed(b)
        work = 2e-12 * n**3
        ours = work / bench.seconds(lambda x=x, y=y: (x @ y).persist())
        theirs = None
        if bench.cupy is not None:
            theirs = work / bench.seconds(lambda a=a, b=b: bench.cupy.matmul(a, b))
            bench.near(name, (x @ y)[:64, :64], bench.cupy.matmul(a[:64], b[:, :64]), rtol)
        bench.compare(name, ours, theirs, 0.9, "TFLOP/s", "CuPy")


def _copy_rate(bench: Bench, x: Any) -> float | None:
    """GB/s that the card copies, both ways counted."""
    if bench.cupy is None:
        return None
    out = bench.cupy.empty_like(x)

    def copy() -> None:
        out[...] = x

    return 2e-9 * x.nbytes / bench.seconds(copy)


def _eight(xp: Any, x: Any, y: Any) -> Any:
    """Eight operations: multiply, add, multiply, subtract, abs, sqrt, add, multiply."""
    return (xp.sqrt(xp.abs((x * 2 + 1) * y - 0.5)) + x) * 3


def chain(bench: Bench) -> None:
    """A fused chain beside the card's copy bandwidth, and beside CuPy's calls one by one."""
    import distarray as dx

    n = 1 << (28 if bench.is_real else 12)
    a, b = bench.made((n,), seed=1), bench.made((n,), seed=2)
    x, y = bench.placed(a), bench.placed(b)
    taken = bench.seconds(lambda: _eight(dx, x, y).persist())
    bench.compare("chain of 8", 3e-9 * a.nbytes / taken, _copy_rate(bench, a), 0.8, "GB/s", "the card's copy")
    plain = None if bench.cupy is None else bench.seconds(lambda: _eight(bench.cupy, a, b))
    bench.compare("chain of 8", 1 / taken, None if plain is None else 1 / plain, 3.0, "per s", "CuPy, call by call")
    if bench.cupy is not None:
        bench.near("chain of 8", _eight(dx, x, y)[:1000], _eight(bench.cupy, a[:1000], b[:1000]), 1e-5)


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def reductions(bench: Bench) -> None:
    """Bytes that must move over the time taken, beside the card's copy bandwidth."""
    import distarray as dx

    shape = (65536, 16384) if bench.is_real else (16, 64)
    a = bench.made(shape)
    x, rate = bench.placed(a), _copy_rate(bench, a)
    rows: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
        "sum": (1, lambda xp, x: xp.sum(x)),
        "sum of rows": (1, lambda xp, x: xp.sum(x, axis=1)),
        "sum of columns": (1, lambda xp, x: xp.sum(x, axis=0)),
        "variance": (1, lambda xp, x: xp.var(x)),
        "variance of rows": (1, lambda xp, x: xp.var(x, axis=1)),
        "softmax": (2, _softmax),
    }
    for name, (passes, call) in rows.items():
        taken = bench.seconds(lambda call=call: call(dx, x).persist())
        bench.compare(name, passes * 1e-9 * a.nbytes / taken, rate, 0.8, "GB/s", "the card's copy")
        if bench.cupy is not None:
            # CuPy adds up single precision in single precision: it is asked for some rows in double.
            part = slice(0, 64)
            bench.near(name, call(dx, x[part]), call(bench.cupy, a[part].astype("f8")), 1e-5)


def memory(bench: Bench) -> None:
    """Arrays of three times ``device-memory-limit``: made there, and read from the host, which the pool bounds."""
    import distarray as dx

    if bench.cupy is None:
        bench.note("memory", "skipped", why="not on strict: it has no pool")
        return
    limit = 1 << (30 if bench.is_real else 22)
    shape = (3 * limit // 8 // 1024, 1024)
    host = np.arange(math.prod(shape), dtype="f8").reshape(shape)
    totals = host.sum(axis=0)
    programs: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "reduced": (lambda x: x.sum(axis=0), totals),
        "multiplied": (lambda x: (x @ dx.ones((1024, 2)))[:, 1].sum(), totals.sum()),
        "reshaped": (lambda x: (x.reshape(-1, 512) * 2).sum(axis=0), 2 * host.reshape(-1, 512).sum(axis=0)),
    }
    pool = bench.cupy.get_default_memory_pool()
    pool.free_all_blocks()
    with dx.config.set({"device-memory-limit": limit}):
        sources = {"made": lambda: dx.arange(host.size, dtype="f8").reshape(shape), "read": lambda: dx.asarray(host)}
        for source, make in sources.items():
            for name, (program, expected) in programs.items():
                line = f"3x the limit, {source}, {name}"
                began = time.perf_counter()
                try:
                    np.testing.assert_allclose(np.asarray(program(make())), expected, rtol=1e-12)
                except (AssertionError, dx.MemoryBudgetError, bench.cupy.cuda.memory.OutOfMemoryError) as error:
                    bench.note(line, "failed", why=" ".join(str(error).split())[:200])
                    continue
                rate = 1e-9 * host.nbytes / (time.perf_counter() - began)
                held = f"{pool.total_bytes() / limit:.2f} of the limit in the pool"
                bench.note(line, "passed", ours=f"{rate:.3g} GB/s", why=held)


def overhead(bench: Bench) -> None:
    """What an evaluation costs that computes next to nothing."""
    import distarray as dx

    x = bench.placed(bench.made((16,)))
    for name, run in {
        "persist 16 elements": lambda: (x * 2 + 1).persist(),
        "float() of a sum": lambda: float(dx.sum(x)),
    }.items():
        bench.note(name, "measured", ours=f"{1e6 * bench.seconds(run):.4g} us")


#: Workloads of the same names, and the variants that are run; their size G fits one card.
WORKLOADS = {
    "p1_matrix_chain": "square",
    "p4_attention": "plain",
    "w1_matrix_chain": "square",
    "w7_regression": "both",
}


def workloads(bench: Bench) -> None:
    """P1, P4, W1 and W7 beside JAX on the same card, and beside CuPy."""
    import importlib

    jax = _jax(bench)
    ratios = []
    for module, variant in WORKLOADS.items():
        case = importlib.import_module(f"benchmarks.{module}").workload(variant, "G" if bench.is_real else "XS")
        if ratio := _workload(bench, case, jax):
            ratios.append(ratio)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        bench.note("geometric mean", "passed" if mean >= 1 else "failed", ratio=mean, goal=1.0, why="JAX")


def _workload(bench: Bench, case: Any, jax: Any) -> float | None:
    """One of them; how many times faster than JAX it is."""
    import distarray as dx

    sources = case.inputs.items()
    arrays = [bench.made(s.shape, s.dtype, seed=k, uniform=name == "u") for k, (name, s) in enumerate(sources)]
    placed = [bench.placed(a) for a in arrays]
    ours = bench.seconds(lambda: dx.persist(*case.program(dx, *placed)))
    if bench.cupy is not None:
        plain = bench.seconds(lambda: case.program(bench.cupy, *arrays))
        bench.compare(case.name, 1 / ours, 1 / plain, 1.0, "per s", "CuPy")
        results = case.program(dx, *placed), case.program(bench.cupy, *arrays)
        for one, other in zip(*results, strict=True):
            bench.near(case.name, one, other, 2e-2 if arrays[0].dtype == np.float32 else 1e-6)
    if jax is None:
        bench.compare(case.name, 1 / ours, None, 1.0, "per s", "JAX with a GPU")
        return None
    given = [jax.numpy.from_dlpack(a) for a in arrays]
    compiled = jax.jit(lambda *xs: case.program(jax.numpy, *xs))
    theirs = bench.seconds(lambda: compiled(*given), jax.block_until_ready)
    bench.compare(case.name, 1 / ours, 1 / theirs, 1.0, "per s", "JAX")
    return theirs / ours


def _jax(bench: Bench) -> Any:
    if not bench.is_real:
        return None
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    # Left to itself it rounds the operands of products to ten bits, which neither CuPy nor distarray does.
    jax.config.update("jax_default_matmul_precision", "highest")
    return jax if jax.default_backend() == "gpu" else None


PARTS: dict[str, Callable[[Bench], None]] = {
    part.__name__: part for part in (machine, matmul, chain, reductions, overhead, workloads, memory)
}


@contextlib.contextmanager
def _cupy_of(device: str) -> Iterator[None]:
    if device != "stand-in":
        yield
        return
    import cupy_stand_in

    with cupy_stand_in.playing():
        yield


def run(part: str, device: str, note: Note) -> int:
    """Run one part; says what is missing where it cannot."""
    with _cupy_of(device):
        try:
            bench = Bench(device, note)
            bench.placed(np.zeros(3))
        except (ImportError, RuntimeError) as error:
            note(part, "failed", why=str(error))
            return 0
        import distarray as dx

        with dx.use(device=bench.device):
            PARTS[part](bench)
    return 0
