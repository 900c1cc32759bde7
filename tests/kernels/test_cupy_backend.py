"""The backend of CuPy on `cupy_stand_in`: order of arguments, fall back to single calls, memory, devices.

What the kernels compute is in `test_cuda_code` and `test_cuda_loops`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import cupy_stand_in
import host_kernels
import numpy as np
import pytest

import distarray as dx
from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import cupy_backend, devices, expressions
from distarray.kernels.outcomes import Outcome, Reduction
from distarray.kernels.program import Program
from distarray.testing import force_tiles

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")

F4, F8, C16, BOOL = (np.dtype(d) for d in ("f4", "f8", "c16", "?"))


@pytest.fixture(scope="module")
def cupy() -> Iterator[Any]:
    with cupy_stand_in.playing(n_gpus=2) as module:
        yield module


@pytest.fixture(scope="module")
def backend(cupy: Any) -> Any:
    return devices.backend_for("cuda:0")


def on_device(backend: Any, program: Program, inputs: list[Any], scalars: Any, shape: tuple[int, ...]) -> Outcome:
    """What a program gives there, on the host; and how many kernels were launched."""
    made = program.run([backend.adopt(x) for x in inputs], scalars, shape, backend=backend)
    host = lambda x: tuple(map(backend.to_host, x)) if isinstance(x, tuple) else backend.to_host(x)
    return made._replace(outputs=[host(x) for x in made.outputs], partials=[host(x) for x in made.partials])


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for every launch of a kernel: its name."""
    seen: list[str] = []
    call = host_kernels.RawKernel.__call__

    def noted(self: Any, *args: Any) -> None:
        seen.append(self.function)
        call(self, *args)

    monkeypatch.setattr(host_kernels.RawKernel, "__call__", noted)
    return seen


def values(dtype: Any, n: int, seed: int) -> np.ndarray[Any, Any]:
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(max(np.iinfo(dtype).min, -9), 9, n).astype(dtype)
    x = rng.standard_normal(n)
    x[:4] = [0.0, -0.0, np.nan if dtype.kind == "f" else 2.0, 1.0]
    return (x + 1j * rng.standard_normal(n) if dtype.kind == "c" else x).astype(dtype)


def test_casts_and_scalars_are_resolved_by_numpy(backend: Any, launched: list[str]) -> None:
    i, x, z = values("i4", 40, 0), values("f4", 40, 1), values("c16", 40, 2)
    program = Program(
        3,
        (
            Instruction("add", (0, 1), F8),
            Instruction("multiply", (1, RuntimeScalar(0)), F4),
            Instruction("less", (0, RuntimeScalar(1)), BOOL),
            Instruction("where", (5, 4, 3), F8),
            Instruction("add", (2, 0), C16),
            Instruction("real", (7,), F8),
            Instruction("astype", (8,), np.dtype("i2")),
            Instruction("divide", (0, RuntimeScalar(2)), F8),
            Instruction("imag", (1,), F4),
            Instruction("astype", (2,), BOOL),
            Instruction("copy", (9,), np.dtype("i2")),
        ),
        tuple(range(3, 14)),
    )
    scalars = [2.5, 3, np.float64(7)]
    actual = on_device(backend, program, [i, x, z], scalars, (40,)).outputs
    expected = program.run([i, x, z], scalars, (40,)).outputs
    assert launched == ["distarray_program"]
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize(("monoid", "dtype"), [("sum", "f8"), ("prod", "f8"), ("any", "?"), ("all", "?")])
def test_a_reduction_is_one_kernel(backend: Any, launched: list[str], monoid: str, dtype: str) -> None:
    x, y = values("f8", 60, 3)[4:].reshape(7, 8), values("f8", 12, 4)[4:]
    program = Program(
        2, (Instruction("subtract", (0, 1), F8), Instruction("square", (2,), F8)), (),
        (Reduction(3, monoid, (0,), np.dtype(dtype)),),
    )  # fmt: skip
    (actual,) = on_device(backend, program, [x, y], (), (7, 8)).partials
    (expected,) = program.run([x, y], (), (7, 8)).partials
    assert launched == ["distarray_reduction"]
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-13)


def test_reductions_over_several_axes_store_their_register_first(backend: Any, launched: list[str]) -> None:
    x = values("f8", 60, 3)[4:].reshape(7, 8)
    program = Program(
        1, (Instruction("exp", (0,), F8),), (1,),
        (Reduction(1, "max", (1,), F8), Reduction(1, "sum", (0, 1), F8), Reduction(0, "argmin", (0,), np.dtype("i8"))),
    )  # fmt: skip
    actual = on_device(backend, program, [x], (), (7, 8))
    expected = program.run([x], (), (7, 8))
    assert launched == ["distarray_program"]
    np.testing.assert_allclose(actual.outputs[0], expected.outputs[0], rtol=1e-14)
    for a, e in zip(actual.partials, expected.partials, strict=True):
        np.testing.assert_allclose(a, e)


def test_what_has_no_expression_runs_call_by_call(backend: Any, launched: list[str]) -> None:
    x = values("f8", 60, 3)[4:]
    program = Program(
        1,
        (
            Instruction("float_power", (0, RuntimeScalar(0)), F8),
            Instruction("clip", (1, RuntimeScalar(1)), F8, ("min",)),
            Instruction("round", (0,), F8, (1,)),
            Instruction("modf", (0,), F8, (1,)),
            Instruction("complex", (0, 3), C16),
        ),
        (2, 3, 0, 4, 5),
    )
    out = backend.adopt(x)
    made = program.run([out], [2.0, -1.0], x.shape, [None, None, out, None, None], backend).outputs
    actual = [backend.to_host(y) for y in made]
    expected = program.run([x], [2.0, -1.0], x.shape).outputs
    assert launched == []
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, e)


def test_an_output_may_be_an_input(backend: Any) -> None:
    x = values("f8", 60, 3)[4:]
    program = Program(1, (Instruction("add", (0, RuntimeScalar(0)), F8), Instruction("multiply", (0, 1), F8)), (1, 2))
    out = backend.adopt(x)
    _, product = program.run([out], [1.0], x.shape, [out, None], backend).outputs
    np.testing.assert_array_equal(backend.to_host(out), x + 1)
    np.testing.assert_array_equal(backend.to_host(product), x * (x + 1))


def test_every_function_of_elementwise_makes_a_kernel_or_a_call(backend: Any) -> None:
    """What neither has a row nor is CuPy's says so; each name here is one that a user cannot have on a GPU."""
    missing = []
    for name in sorted(n for n, f in vars(np).items() if isinstance(f, np.ufunc) and f.signature is None):
        function = getattr(np, name)
        if function.nout > 1 or name in expressions.EXPRESSIONS["f"] or name in expressions.EXPRESSIONS["i"]:
            continue
        if not hasattr(backend.cupy, function.__name__):
            missing.append(name)
    assert missing == ["isnat", "spacing"]


def test_what_cupy_lacks_is_said(cupy: Any) -> None:
    """B-14, B-15: no silent way over the host."""
    with pytest.raises(TypeError, match="not on cuda: CuPy has no spacing"):
        np.asarray(dx.spacing(dx.ones(4, device="cuda")))


def test_arrays_that_are_played_are_as_strict_as_cupys(cupy: Any) -> None:
    """Or the tests on them would show nothing."""
    x, host = cupy.arange(4.0), np.arange(4.0)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
    for mixed in (lambda: x + host, lambda: host * x, lambda: cupy.add(x, host), lambda: cupy.sum(host)):
        with pytest.raises(TypeError, match="Unsupported type"):
            mixed()
    with cupy.cuda.Device(1), pytest.raises(ValueError, match="Array device must be same"):
        x + 1
    with pytest.raises(TypeError, match="unexpected keyword"):
        cupy.sort(x, stable=True)
    with pytest.raises(AttributeError):
        cupy.geomspace
    assert type(x.sum()).__name__ == "ndarray"
    assert not hasattr(x, "__array_namespace__")
    assert x[1:].base is not None
    x[1:] += 1
    np.testing.assert_array_equal(x.get(), [0, 2, 3, 4])


def test_members_compute_on_their_own_gpu(cupy: Any) -> None:
    """B-10: whatever the GPU of the thread that runs a member's tasks."""
    team = dx.Team((3,), ("R",))
    values = np.arange(24.0).reshape(6, 4)
    x = dx.asarray(values, team=team, device="cuda", sharding=("R", None))
    y = (x * 2 + 1).persist()
    assert [y.local(m).device.id for m in range(3)] == [0, 1, 0]
    np.testing.assert_array_equal(
        np.asarray(y @ y.T), (np.arange(24.0).reshape(6, 4) * 2 + 1) @ (np.arange(24.0).reshape(6, 4) * 2 + 1).T
    )
    assert cupy.cuda.runtime.getDevice() == 0


def test_a_copy_lies_where_the_block_does_and_in_its_order(cupy: Any, backend: Any) -> None:
    other = devices.backend_for("cuda:1")
    block = other.adopt(np.arange(24.0).reshape(2, 3, 4)).transpose(2, 0, 1)
    made = backend.copy(block)
    assert made.device == other.device
    assert made.strides == block.strides
    np.testing.assert_array_equal(backend.to_host(made), backend.to_host(block))
    x = dx.asarray(np.eye(2, 3), device="cuda", team=dx.Team(2, "x"))
    with force_tiles(2):
        q, _ = dx.linalg.qr(x, mode="complete")
        assert q.to_device("cpu").shape == (2, 2)


DRAWS: list[tuple[str, tuple[Any, ...]]] = [
    *(
        ("integers", (0, 10)),
        ("poisson", (3.0,)),
        ("poisson", (50.0,)),
        ("binomial", (10, 0.3)),
        ("binomial", (90, 0.6)),
    ),
    *(("hypergeometric", (10, 20, 5)), ("hypergeometric", (900, 2000, 500)), ("gamma", (0.5,)), ("gamma", (2.0,))),
    *(("zipf", (2.0,)), ("logseries", (0.7,)), ("vonmises", (0.0, 1.0)), ("vonmises", (0.0, 0.0))),
    *(("multinomial", (50, [0.2, 0.3, 0.5])), ("multivariate_hypergeometric", ([50, 60, 70], 80)), ("normal", ())),
]


@pytest.mark.parametrize(("name", "parameters"), DRAWS)
def test_numbers_of_a_gpu_are_those_of_the_host(cupy: Any, name: str, parameters: tuple[Any, ...]) -> None:
    def drawn(device: str) -> np.ndarray[Any, Any]:
        draw = getattr(dx.random.default_rng(3), name)
        return np.asarray(draw(*parameters, size=(300,), device=device).to_device("cpu"))

    np.testing.assert_allclose(drawn("cuda"), drawn("cpu"), rtol=1e-12)


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-14"""

    class CUDARuntimeError(RuntimeError):
        pass

    def no_driver() -> int:
        raise CUDARuntimeError("cudaErrorNoDevice")

    runtime = types.SimpleNamespace(getDeviceCount=no_driver, CUDARuntimeError=CUDARuntimeError)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(cupy_backend, "_cupy", lambda: cupy)
    devices._cupy.cache_clear()
    with pytest.raises(RuntimeError, match="needs an NVIDIA GPU and its driver; CuPy says: cudaErrorNoDevice"):
        devices.backend_for("cuda")
    runtime.getDeviceCount = lambda: 2
    with pytest.raises(ValueError, match=r"cuda:2.*finds 2"):
        devices.backend_for("cuda:2")


def test_the_limit_of_a_device_is_held_by_plans_and_by_the_pool(cupy: Any) -> None:
    """An array of three times the limit is reduced under it; what does not fit is refused, and names the option."""
    limit = 4 << 20
    pool = cupy_stand_in.Pool.of(0)
    with dx.config.set(device_memory_limit=limit), dx.use(None, "cuda"):
        before = pool.used
        pool.peak = before
        x = dx.arange(3 * limit // 8, dtype=np.float64)
        mean = float((x * 2).mean())
        assert cupy.get_default_memory_pool().get_limit() == limit
        assert pool.peak - before <= limit
        with pytest.raises(dx.MemoryBudgetError, match=f"above the device-memory-limit of {limit} bytes"):
            (x + 1).persist()
    assert mean == 3 * limit // 8 - 1
    with dx.use(None, "cuda"):
        (x[:10] + 1).persist()
    assert cupy.get_default_memory_pool().get_limit() == 0
