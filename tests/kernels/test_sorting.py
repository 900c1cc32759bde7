"""Sorts are stable ones, to the bit, whichever of NumPy's sorts computes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distarray.kernels import sorting

DTYPES = ["b1", "i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "M8[s]", "m8[ms]"]


def numpys(x: np.ndarray, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the last axis in order by NumPy's stable sort, and where the elements stood."""
    if descending:
        order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(x, axis=-1, kind="stable")
    return np.take_along_axis(x, order, axis=-1), order


@st.composite
def blocks(draw: st.DrawFn) -> np.ndarray:
    """Rows with many equal elements, zeros of either sign and nans."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.sampled_from([(0,), (1,), (7,), (40,), (3, 0), (2, 1), (3, 11), (2, 2, 9)]))
    numbers = draw(hnp.arrays("i8", shape, elements=st.integers(-2, 4)))
    x = numbers.astype("i8" if dtype.kind in "mM" else "f8")
    if dtype.kind in "fc":
        x = np.where(x == -1, draw(st.sampled_from([-0.0, 0.5])), np.where(x == 4, np.nan, x))
        if dtype.kind == "c":
            x = x + 1j * np.roll(x, 1)
    with np.errstate(invalid="ignore"):
        x = np.abs(x).astype(dtype) if dtype.kind == "u" else x.astype(dtype)
    if dtype.kind in "mM":
        x[numbers == 4] = "NaT"
    return x


@given(blocks(), st.booleans(), st.sampled_from([1 << 18, 20, 3]))
def test_blocks_are_sorted_as_by_a_stable_sort(x: np.ndarray, descending: bool, at_a_time: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "SHORT", 1)
        patch.setattr(sorting, "SLICE", at_a_time)
        before = x.copy()
        expected, order = numpys(x, descending)
        found = sorting.sort(np, x, params=(descending, True))
        assert found.dtype == x.dtype
        assert same(found, expected) if x.dtype.kind in "fc" else found.tobytes() == expected.tobytes()
        np.testing.assert_array_equal(sorting.argsort(np, x, params=(descending, True)), order)
        assert x.tobytes() == before.tobytes()


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether all bits are equal, but for those of nans, which are never promised."""
    parts: Any = [(found, expected)]
    if found.dtype.kind == "c":
        parts = [(found.real, expected.real), (found.imag, expected.imag)]
    return all(
        np.array_equal(f, e, equal_nan=True) and np.array_equal(np.signbit(f[f == f]), np.signbit(e[e == e]))
        for f, e in parts
    )


#: From uniform words, which of 64 bits an order may begin with differs.
CLOSE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "words": lambda x: x,
    "signed": lambda x: x.view("i8"),
    "close together": lambda x: (1 << 62) + (x >> 40),
    "beside an outlier": lambda x: np.where(x == x.max(), x, x >> 50),
    "pairs that are alike": lambda x: (x >> 60 << 60) + (x & 3),
    "floats": lambda x: x / 2.0**64 - 0.5,
    "floats that are alike": lambda x: 1 + (x >> 56) * 2.0**-52,
    "single": lambda x: (x >> 50).astype("f4") - 99,
    "in order": np.sort,
    "two runs": lambda x: np.concatenate([np.sort(x[:900]), np.sort(x[900:])]),
}


@pytest.mark.parametrize("at_a_time", [1 << 18, 100])
@pytest.mark.parametrize("shape", [(3001,), (3, 1000)], ids=str)
@pytest.mark.parametrize("made", CLOSE.values(), ids=CLOSE)
def test_an_order_is_that_of_all_bits(
    made: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "SLICE", at_a_time)
    monkeypatch.setattr(sorting, "LONG_RUN", 1000)
    words = np.random.default_rng(5).integers(0, 2**64, shape, dtype=np.uint64)
    x = made(words.reshape(-1)).reshape(shape)
    np.testing.assert_array_equal(sorting.argsort(np, x, params=(False, True)), np.argsort(x, axis=-1, kind="stable"))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("step", [4, 0.001])
def test_long_rows_of_half_precision(step: float, descending: bool) -> None:
    """NumPy's default sort of them is out of order on some processors, its stable one is not."""
    rng = np.random.default_rng(0)
    x = (rng.integers(-20, 20, (2, 40_000)) / step).astype("f2")
    x[rng.random(x.shape) < 0.01] = np.nan
    x[rng.random(x.shape) < 0.01] = -np.inf
    x.view("u2")[0, 5] = 0xFE00  # a nan with a sign
    x[x == 0] = 1  # what follows is not the way of zeros of either sign
    assert same(sorting.sort(np, x, params=(descending, True)), numpys(x, descending)[0])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
@pytest.mark.parametrize("kinds", [3, 1000, 10**6])
def test_large_blocks(dtype: str, kinds: int) -> None:
    """These are long enough for NumPy's vectorised sorts."""
    rng = np.random.default_rng(kinds)
    for shape in ((600_000,), (20, 3_000)):
        x = rng.integers(0, kinds, shape).astype(dtype)
        if dtype[0] == "f":
            x[..., ::7] *= -0.5
            x[..., 5::1000] = np.nan
            x[x == 0] = np.where(rng.random((x == 0).sum()) < 0.5, 0.0, -0.0)
        for descending in (False, True):
            expected, order = numpys(x, descending)
            assert same(sorting.sort(np, x, params=(descending, True)), expected)
            np.testing.assert_array_equal(sorting.argsort(np, x, params=(descending, True)), order)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_an_order_meets_no_nan_that_signals(dtype: str) -> None:
    x = np.arange(2.0 * sorting.SHORT, dtype=dtype)[::-1].copy()
    x.view(f"u{x.itemsize}")[5] = 0x7F800001 if dtype == "f4" else 0x7FF0000000000001
    expected = np.argsort(x, kind="stable")
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(sorting.argsort(np, x, params=(False, True)), expected)
