"""The kernels generated for CuPy, compiled by the host's C++ compiler: they mean what numpy means.

CuPy itself is played by a small module on numpy that compiles what it is given for an `ElementwiseKernel` or a
`ReductionKernel`. So everything but CuPy is tested where there is no GPU: the code, the order of arguments, the fall
back to single calls.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import types
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import cupy_backend, devices
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

F4, F8, C16, BOOL = (np.dtype(d) for d in ("f4", "f8", "c16", "?"))
HEADER = """
#include <cmath>
#include <complex>
#define __device__ static inline
using namespace std;
"""


class FakeCuda:
    """``cupy`` as far as the backend uses it, on numpy arrays and the host's compiler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernels = 0

    def _compile(self, source: str) -> Any:
        stem = self.folder / hashlib.sha1(source.encode()).hexdigest()
        stem.with_suffix(".cpp").write_text(HEADER + source)
        command = ["g++", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", f"{stem}.so", f"{stem}.cpp"], check=True)
        return ctypes.CDLL(f"{stem}.so").run

    @staticmethod
    def _split(parameters: str) -> list[tuple[str, str]]:
        return [(p.split()[0], p.split()[1]) for p in parameters.split(", ") if p]

    def _pointers(self, arrays: list[Any]) -> list[Any]:
        return [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]

    def _loop(self, ins: list[tuple[str, str]], outs: list[tuple[str, str]], preamble: str, body: str) -> str:
        of = cupy_backend._C_TYPE
        arguments = ", ".join(["long long n", *(f"{of[t]}* p_{name}" for t, name in ins + outs)])
        reads = "\n".join(f"const {of[t]} {name} = p_{name}[i];" for t, name in ins)
        refs = "\n".join(f"{of[t]}& {name} = p_{name}[i];" for t, name in outs)
        loop = f"for (long long i = 0; i < n; i++) {{\n{reads}\n{refs}\n{body}\n}}"
        return f'{preamble}\nextern "C" void run({arguments}) {{ {loop} }}'

    def elementwise(self, ins: str, outs: str, body: str, name: str, options: tuple[str, ...]) -> Any:
        assert options == ("--fmad=false",)
        self.kernels += 1
        run = self._compile(self._loop(self._split(ins), self._split(outs), "", body))
        n_in = len(self._split(ins))

        def call(*arguments: Any) -> None:
            shape = arguments[n_in].shape
            wanted = [t for t, _ in self._split(ins) + self._split(outs)]
            assert [np.asarray(a).dtype.name for a in arguments] == wanted
            given = [np.array(np.broadcast_to(a, shape), order="C") for a in arguments]
            run(ctypes.c_longlong(int(np.prod(shape))), *self._pointers(given))
            for target, made in zip(arguments[n_in:], given[n_in:], strict=True):
                target[...] = made

        return call

    def reduction(
        self, ins: str, out: str, map_expr: str, combine: str, post: str, identity: str, name: str,
        reduce_type: str, preamble: str, options: tuple[str, ...],
    ) -> Any:  # fmt: skip
        assert (post, options) == ("y = a", ("--fmad=false",))
        self.kernels += 1
        mapped = self._compile(self._loop(self._split(ins), self._split(out), preamble, f"y = {map_expr};"))
        fold = {"a + b": np.add, "a * b": np.multiply, "a || b": np.logical_or, "a && b": np.logical_and}[combine]

        def call(*arguments: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
            shape = np.broadcast_shapes(*(np.shape(a) for a in arguments))
            given = [np.array(np.broadcast_to(a, shape), order="C") for a in arguments]
            values = np.empty(shape, self._split(out)[0][0])
            mapped(ctypes.c_longlong(values.size), *self._pointers([*given, values]))
            return fold.reduce(values, axis=axis, keepdims=keepdims)

        return call


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda(tmp_path)
    module = types.SimpleNamespace(
        **{k: getattr(np, k) for k in dir(np) if not k.startswith("_")},
        ElementwiseKernel=made.elementwise,
        ReductionKernel=made.reduction,
        asnumpy=np.asarray,
    )
    monkeypatch.setattr(cupy_backend, "_cupy", lambda: module)
    for cached in (cupy_backend._elementwise_kernel, cupy_backend._reduction_kernel):
        cached.cache_clear()
    yield made
    for cached in (cupy_backend._elementwise_kernel, cupy_backend._reduction_kernel):
        cached.cache_clear()


@pytest.fixture
def backend(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = object.__new__(cupy_backend.CupyBackend)
    made.cupy, made.xp, made.device = cupy_backend._cupy(), np, nullcontext()
    return made


def values(dtype: Any, n: int, seed: int) -> np.ndarray[Any, Any]:
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(max(np.iinfo(dtype).min, -9), 9, n).astype(dtype)
    x = rng.standard_normal(n)
    x[:4] = [0.0, -0.0, np.nan if dtype.kind == "f" else 2.0, 1.0]
    return (x + 1j * rng.standard_normal(n) if dtype.kind == "c" else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "u8", "f4", "f8", "c8", "c16"])
def test_every_expression_means_what_numpy_means(backend: Any, fake: FakeCuda, dtype: str) -> None:
    table = cupy_backend._EXPRESSIONS[np.dtype(dtype).kind]
    operands = [values(dtype, 50, seed) for seed in (1, 2)]
    instructions, expected = [], []
    with np.errstate(all="ignore"):
        for name in sorted(table):
            f = getattr(np, name)
            expected.append(f(*operands[: f.nin]))
            instructions.append(Instruction(name, tuple(range(f.nin)), expected[-1].dtype))
        program = Program(2, tuple(instructions), tuple(range(2, 2 + len(instructions))))
        found = program.run(operands, (), (50,), backend=backend).outputs
    assert fake.kernels == 1
    for i, a, e in zip(instructions, found, expected, strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=1e-4 if np.dtype(dtype).itemsize <= 8 else 1e-12, err_msg=i.function)


def test_casts_and_scalars_are_resolved_by_numpy(backend: Any, fake: FakeCuda) -> None:
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
    actual = program.run([i, x, z], scalars, (40,), backend=backend).outputs
    expected = program.run([i, x, z], scalars, (40,)).outputs
    assert fake.kernels == 1
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize(("monoid", "dtype"), [("sum", "f8"), ("prod", "f8"), ("any", "?"), ("all", "?")])
def test_one_sum_like_reduction_is_one_kernel(backend: Any, fake: FakeCuda, monoid: str, dtype: str) -> None:
    x, y = values("f8", 60, 3)[4:].reshape(7, 8), values("f8", 12, 4)[4:]
    program = Program(
        2, (Instruction("subtract", (0, 1), F8), Instruction("square", (2,), F8)), (),
        (Reduction(3, monoid, (0,), np.dtype(dtype)),),
    )  # fmt: skip
    (actual,) = program.run([x, y], (), (7, 8), backend=backend).partials
    (expected,) = program.run([x, y], (), (7, 8)).partials
    assert fake.kernels == 1
    np.testing.assert_allclose(actual, expected, rtol=1e-13)


def test_other_reductions_store_their_register_first(backend: Any, fake: FakeCuda) -> None:
    x = values("f8", 60, 3)[4:].reshape(7, 8)
    program = Program(
        1, (Instruction("exp", (0,), F8),), (1,),
        (Reduction(1, "max", (1,), F8), Reduction(1, "sum", (0, 1), F8), Reduction(0, "argmin", (0,), np.dtype("i8"))),
    )  # fmt: skip
    actual = program.run([x], (), (7, 8), backend=backend)
    expected = program.run([x], (), (7, 8))
    assert fake.kernels == 1
    np.testing.assert_allclose(actual.outputs[0], expected.outputs[0], rtol=1e-14)
    for a, e in zip(actual.partials, expected.partials, strict=True):
        np.testing.assert_allclose(a, e)


def test_what_has_no_expression_runs_call_by_call(backend: Any, fake: FakeCuda) -> None:
    x = values("f8", 60, 3)[4:]
    program = Program(
        1,
        (
            Instruction("floor_divide", (0, RuntimeScalar(0)), F8),
            Instruction("clip", (1, RuntimeScalar(1)), F8, ("min",)),
            Instruction("round", (0,), F8, (1,)),
            Instruction("modf", (0,), F8, (1,)),
        ),
        (2, 3, 0, 4),
    )
    out = x.copy()
    actual = program.run([out], [0.5, -1.0], x.shape, [None, None, out, None], backend).outputs
    expected = program.run([x], [0.5, -1.0], x.shape).outputs
    assert fake.kernels == 0
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, e)


def test_an_output_may_be_an_input(backend: Any) -> None:
    x = values("f8", 60, 3)[4:]
    program = Program(1, (Instruction("add", (0, RuntimeScalar(0)), F8), Instruction("multiply", (0, 1), F8)), (1, 2))
    out = x.copy()
    _, product = program.run([out], [1.0], x.shape, [out, None], backend).outputs
    np.testing.assert_array_equal(out, x + 1)
    np.testing.assert_array_equal(product, x * (x + 1))


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-14"""

    class CUDARuntimeError(RuntimeError):
        pass

    def no_driver() -> int:
        raise CUDARuntimeError("cudaErrorNoDevice")

    runtime = types.SimpleNamespace(getDeviceCount=no_driver, CUDARuntimeError=CUDARuntimeError)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(cupy_backend, "_cupy", lambda: cupy)
    with pytest.raises(RuntimeError, match="needs an NVIDIA GPU and its driver; CuPy says: cudaErrorNoDevice"):
        devices.backend_for("cuda")
    runtime.getDeviceCount = lambda: 2
    with pytest.raises(ValueError, match=r"cuda:2.*finds 2"):
        devices.backend_for("cuda:2")
