"""Fourier transforms are numpy's, on any cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import peak_nbytes

import distarray as dx
from distarray.kernels import tables
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_close

X = np.random.default_rng(0).standard_normal((6, 5, 4))
NAMES_1D = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
NAMES_ND = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: lambda fft, x, name=name: getattr(fft, name)(x) for name in NAMES_1D + NAMES_ND},
    **{f"{name}, n": lambda fft, x, name=name: getattr(fft, name)(x, n=7, axis=1) for name in NAMES_1D},
    **{f"{name}, ortho": lambda fft, x, name=name: getattr(fft, name)(x, n=3, norm="ortho") for name in NAMES_1D},
    **{
        f"{name}, s": lambda fft, x, name=name: getattr(fft, name)(x, s=(3, 8), axes=(2, 0), norm="forward")
        for name in NAMES_ND
    },
    "fftshift": lambda fft, x: fft.fftshift(x),
    "fftshift, axes": lambda fft, x: fft.fftshift(x, axes=(0, 1)),
    "ifftshift": lambda fft, x: fft.ifftshift(x, axes=1),
    "fftfreq": lambda fft, x: fft.fftfreq(7, d=0.25),
    "rfftfreq": lambda fft, x: fft.rfftfreq(8),
}


@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_transform_is_numpys(call: Callable[[Any, Any], Any], tiles: int) -> None:
    with force_tiles(tiles):
        assert_close(call(dx.fft, dx.asarray(X)), call(np.fft, X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i4", "?"])
def test_dtype_is_numpys(dtype: str) -> None:
    x = X[0].astype(dtype)
    assert_close(dx.fft.fft(dx.asarray(x)), np.fft.fft(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES_1D)
@pytest.mark.parametrize(("shape", "axis"), [((0, 6), -1), ((6, 0), 0), ((2, 0, 3), 0)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_no_rows_are_transformed_to_none(name: str, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = np.zeros(shape, dtype)
    expected = getattr(np.fft, name)(x, axis=axis)
    for options in ({}, {"eager_bytes": 0, "block_bytes": 0}):
        with dx.config.set(options):
            np.testing.assert_array_equal(getattr(dx.fft, name)(dx.asarray(x), axis=axis), expected, strict=True)


@pytest.mark.parametrize("name", NAMES_1D)
@pytest.mark.parametrize("n", [None, 300])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "i4", "?", "F", "D"])
def test_few_rows_are_cast_at_a_time(name: str, n: int | None, dtype: str) -> None:
    """NumPy would make double complex numbers of all of them first, and of all of the result."""
    if np.dtype(dtype).kind == "c" and name in ("rfft", "ihfft"):
        pytest.skip("of real numbers")
    x = (3 * np.random.default_rng(0).random((8, 500, 400))).astype(dtype)
    expected = getattr(np.fft, name)(x, n=n)
    out = np.empty_like(expected)
    transform = partial(tables.FILL["fft"], out, x, params=(name, n, None))
    nbytes = min([peak_nbytes(transform)[1] for _ in range(3)])  # of all threads, which may be at work beside it
    np.testing.assert_array_equal(out, expected)
    assert nbytes <= tables.SCRATCH["fft"](x.shape, x.dtype, (name, n, None)) + (1 << 19) < out.nbytes


def test_inverse_gives_back() -> None:
    x = dx.asarray(X)
    assert_close(dx.fft.irfftn(dx.fft.rfftn(x), s=X.shape, axes=(0, 1, 2)), X, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"n": 0}, ValueError), ({"axis": 3}, IndexError), ({"norm": "loud"}, ValueError)],
)
def test_bad_arguments_are_refused_at_the_call(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        dx.fft.fft(dx.asarray(X), **options)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    **{f"{n}, more lengths than axes": lambda f, x, n=n: getattr(f, n)(x[0], s=(1, 2, 3)) for n in NAMES_ND[:4]},
    **{f"{n}, axes of one number": lambda f, x, n=n: getattr(f, n)(x, axes=1) for n in NAMES_ND},
    "rfftn, no axes": lambda f, x: f.rfftn(x, axes=()),
    "irfftn, no axes": lambda f, x: f.irfftn(x, axes=()),
    "fftfreq, negative": lambda f, x: f.fftfreq(-1),
    "fftfreq, fraction": lambda f, x: f.fftfreq(2.5),
    "rfftfreq, fraction": lambda f, x: f.rfftfreq(2.5),
}


@pytest.mark.filterwarnings("ignore:.*axes.*:DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses_is_refused_by_the_same_error(name: str) -> None:
    with pytest.raises(Exception, match=r".") as theirs:
        REFUSED[name](np.fft, X)
    with pytest.raises(theirs.type):
        REFUSED[name](dx.fft, dx.asarray(X))


@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f.rfftn(x[0], axes=(0, 0)),
        lambda f, x: f.fftn(x[0], axes=(1, 1)),
        lambda f, x: f.irfftn(x, s=(4, -1), axes=(0, 1)),
        lambda f, x: f.rfft2(x, s=(-1, 3)),
        lambda f, x: f.fftshift(x, axes=(0, 0)),
        lambda f, x: f.ifftshift(x, axes=(1, 0, 1)),
        lambda f, x: f.fftfreq(4, 2),
        lambda f, x: f.rfftfreq(np.int64(4), 0.5),
        lambda f, x: f.rfftfreq(-1),
    ],
)
def test_axes_that_come_twice_and_lengths_that_are_whole_are_numpys(call: Callable[[Any, Any], Any]) -> None:
    assert_close(call(dx.fft, dx.asarray(X)), call(np.fft, X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES_1D)
def test_what_is_made_of_nothing_is_zero(name: str) -> None:
    """NumPy pads with zeros too, but for `irfft` and `hfft`, which return what was in memory."""
    found = getattr(dx.fft, name)(dx.zeros((2, 0), dtype=np.float32), n=6)
    n = 4 if name in ("rfft", "ihfft") else 6
    np.testing.assert_array_equal(np.asarray(found), np.zeros((2, n), getattr(np.fft, name)(X[0, 0]).dtype))
