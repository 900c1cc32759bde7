"""Kernels on the device against numpy: every row of the generator, reductions, sorts, transforms, factorisations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import module_at

import distarray as dx
from distarray.kernels import cuda_code
from distarray.kernels.devices import backend_for
from distarray.testing import no_host_copies

rows = module_at(Path(__file__).parents[1] / "kernels" / "test_cuda_code.py")

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

TEAMS = [None, dx.Team((2, 2), ("R", "C"))]
DTYPES = [np.dtype(name) for name in cuda_code.C_TYPE]
#: Units in the last place that CUDA's functions may be away from numpy's, by `rtol`; sums add in another order.
RTOL = {"f2": 2e-3, "f4": 2e-5, "f8": 1e-12, "c8": 2e-5, "c16": 1e-12}


def assert_near(actual: Any, expected: Any, atol: float = 0.0) -> None:
    """Bits for integers, `RTOL` for the rest."""
    host = np.asarray(actual)
    assert host.dtype == expected.dtype
    rtol = RTOL.get(host.dtype.str[1:], 0)
    np.testing.assert_allclose(host, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_expression_on_the_device(cuda: str, dtype: np.dtype[Any]) -> None:
    """Bits where IEEE 754 or integers define them, CUDA's stated errors elsewhere."""
    program, inputs = rows.of_table(dtype)
    backend = backend_for(cuda)
    given = [backend.adopt(x) for x in inputs]
    with no_host_copies():
        found = program.run(given, (), inputs[0].shape, backend=backend).outputs
    for instruction, a in zip(program.instructions, found, strict=True):
        operands = inputs[: len(instruction.inputs)]
        with np.errstate(all="ignore"):
            expected = getattr(np, instruction.function)(*operands)
        actual = backend.to_host(a)
        assert actual.dtype == expected.dtype
        exact = rows.is_exact(instruction.function, (expected.dtype, *(x.dtype for x in operands)))
        # Denormal numbers, and what overflows half way, come out otherwise in some of CUDA's functions; CuPy compiles
        # so that denormal numbers in single precision are zeros.
        is_any_tame = exact and dtype != np.float32
        tame = (
            np.ones(expected.shape, bool)
            if is_any_tame
            else np.all([ordinary(x) for x in (*operands, expected)], axis=0)
        )
        np.testing.assert_allclose(
            actual[tame],
            expected[tame],
            rtol=0 if exact else RTOL.get(expected.dtype.str[1:], 0),
            err_msg=f"{instruction.function} of {dtype}",
        )


def ordinary(x: np.ndarray) -> np.ndarray:
    """Where a number is neither denormal nor near the ends of its dtype."""
    if x.dtype.kind not in "fc":
        return np.ones(x.shape, bool)
    info, size = np.finfo(x.dtype), abs(x)
    return np.isnan(x) | (size == 0) | (size > info.tiny**0.4) & (size < info.max**0.4)


REDUCTIONS = "sum prod max min mean var std any all argmax argmin count_nonzero".split()


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["?", "i1", "u4", "i8", "f2", "f4", "f8", "c8"])
def test_reductions(device: str, name: str, dtype: str, axis: int | None) -> None:
    if dtype == "f2" and device == "strict":
        pytest.skip("not on strict: the standard has no float16")
    if name in ("max", "min", "argmax", "argmin") and dtype == "c8":
        pytest.skip("complex numbers have no order")
    values = (np.random.default_rng(3).permutation(600).reshape(20, 30) / 64 - 4).astype(dtype)
    if name == "prod":
        values = values[:6, :4]
    for team in TEAMS:
        x = dx.asarray(values, team=team, device=device)
        with no_host_copies():
            made = getattr(dx, name)(x, axis=axis).persist()
        assert made.device == device
        np.testing.assert_allclose(
            np.asarray(made), getattr(np, name)(values, axis=axis), rtol=2e-3 if dtype == "f2" else 2e-5, atol=1e-5
        )


SORTS: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda xp, x: xp.sort(x, axis=0),
    "argsort": lambda xp, x: xp.argsort(x, axis=0, stable=True),
    "unique": lambda xp, x: xp.unique_counts(x.reshape(-1) if xp is np else xp.reshape(x, (-1,))),
    "searchsorted": lambda xp, x: xp.searchsorted(xp.sort(x[:, 0]), x[:, 1]),
    "cumulative sum": lambda xp, x: xp.cumulative_sum(x, axis=0),
}


@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
@pytest.mark.parametrize("name", SORTS)
def test_sorts_have_numpys_bits(device: str, name: str, dtype: str) -> None:
    values = (np.random.default_rng(4).integers(-40, 40, (300, 4)) / 2).astype(dtype)
    expected = SORTS[name](np, values)
    for team in TEAMS:
        made = SORTS[name](dx, dx.asarray(values, team=team, device=device))
        for a, e in zip(*[x if isinstance(x, tuple) else (x,) for x in (made, expected)], strict=True):
            np.testing.assert_array_equal(np.asarray(a), e)


MATRICES = np.random.default_rng(5).standard_normal((3, 24, 24)) + 9 * np.eye(24)
LINALG: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda xp, x: x @ x[0],
    "transposed operands": lambda xp, x: xp.matmul(x[0].T, x[1].T),
    "einsum": lambda xp, x: xp.einsum("bij,bjk,bkl->bil", x, x, x),
    "solve": lambda xp, x: xp.linalg.solve(x[0], x[1]),
    "inv": lambda xp, x: xp.linalg.inv(x[1]),
    "det": lambda xp, x: xp.linalg.det(x[2]),
    "cholesky": lambda xp, x: xp.linalg.cholesky(x[0] @ x[0].T),
    "eigvalsh": lambda xp, x: xp.linalg.eigvalsh(x[0] + x[0].T),
    "svdvals": lambda xp, x: xp.linalg.svdvals(x[0]),
    "qr": lambda xp, x: xp.matmul(*xp.linalg.qr(x[0])),
    "norm": lambda xp, x: xp.linalg.vector_norm(x, axis=1),
}
FFT: dict[str, Callable[[Any, Any], Any]] = {
    "fft": lambda xp, x: xp.fft.fft(x, axis=1),
    "fft of 5": lambda xp, x: xp.fft.fft(x, n=5, axis=1),
    "ifft": lambda xp, x: xp.fft.ifft(x + 1j),
    "rfft": lambda xp, x: xp.fft.rfft(x, axis=1),
    "irfft": lambda xp, x: xp.fft.irfft(x + 1j, axis=1),
    "fftn": lambda xp, x: xp.fft.fftn(x),
    "fftshift": lambda xp, x: xp.fft.fftshift(x),
}


@pytest.mark.parametrize("name", [*LINALG, *FFT])
def test_linear_algebra_and_transforms(device: str, name: str) -> None:
    call = (LINALG | FFT)[name]
    expected = np.asarray(call(np, MATRICES))
    for team in TEAMS:
        made = call(dx, dx.asarray(MATRICES, team=team, device=device)).persist()
        assert made.device == device
        np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-9, atol=1e-9)


#: Distributions, and whether the device has the CPU's bits: those that need no function that CUDA rounds otherwise.
DISTRIBUTIONS: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "integers": (True, lambda r: r.integers(-5, 1000, (50, 40))),
    "random": (True, lambda r: r.random((50, 40))),
    "uniform": (True, lambda r: r.uniform(-2, 3, 1000)),
    "standard_normal": (False, lambda r: r.standard_normal((50, 40))),
    "normal, single": (False, lambda r: r.standard_normal(1000, dtype=np.float32)),
    "exponential": (False, lambda r: r.exponential(2.0, 1000)),
    "gamma": (False, lambda r: r.gamma(2.5, 1.5, 1000)),
    "poisson": (False, lambda r: r.poisson(3.5, 1000)),
    "binomial": (False, lambda r: r.binomial(20, 0.3, 1000)),
    "permutation": (True, lambda r: r.permutation(500)),
    "choice": (True, lambda r: r.choice(100, 30)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_random_numbers_are_those_of_the_cpu(cuda: str, name: str) -> None:
    exact, draw = DISTRIBUTIONS[name]
    with dx.use(device="cpu"):
        expected = np.asarray(draw(dx.random.default_rng(11)))
    with dx.use(device=cuda):
        made = draw(dx.random.default_rng(11)).persist()
    assert made.device == cuda
    np.testing.assert_allclose(np.asarray(made), expected, rtol=0 if exact else 1e-6)
