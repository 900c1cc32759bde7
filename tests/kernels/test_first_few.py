"""The first few elements of rows: those of a stable order, without putting the rows in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distarray.kernels import first_few, sorting

DTYPES = ("f8", "f4", "f2", "i8", "i1", "u4", "?", "M8[s]", "m8[s]", "c16")


def _rows(dtype: str, shape: tuple[int, ...], spread: int, part_of_nan: float) -> Any:
    rng = np.random.default_rng(spread)
    drawn = rng.integers(-spread, spread, shape)
    x = drawn > 0 if dtype == "?" else (drawn % 100 if dtype in ("i1", "f2") else drawn).astype(dtype)
    if x.dtype.kind in "fcmM":
        x[rng.random(shape) < part_of_nan] = "NaT" if x.dtype.kind in "mM" else np.nan
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [3, 10**6])
@pytest.mark.parametrize("part_of_nan", [0, 0.1, 0.95])
@pytest.mark.parametrize("shape", [(40,), (7, 40), (3, 4, 50), (9001,), (2, 5000)])
def test_first_of_rows_are_those_of_a_stable_order(
    shape: tuple[int, ...], part_of_nan: float, spread: int, dtype: str
) -> None:
    x = _rows(dtype, shape, spread, part_of_nan)
    for descending in (True, False):
        order = sorting.argsort(np, x, params=(descending, True))
        for k in (0, 1, 3, 9, 12, 40):
            found = first_few.BLOCK["top_rows"](np, x, params=(k, descending))
            np.testing.assert_array_equal(found, order[..., :k])
            assert found.dtype == np.intp


@pytest.mark.parametrize("shape", [(600, 1000), (500_000,)])
def test_only_the_first_of_rows_are_put_in_order(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    k, sizes, parted = 5, [], []
    argsort, copied = sorting.argsort, first_few.copied

    def counted(xp: Any, x: Any, *, params: Any) -> Any:
        sizes.append(x.size)
        return argsort(xp, x, params=params)

    def counted_copy(x: Any) -> Any:
        parted.append(x.size)
        return copied(x)

    monkeypatch.setattr(sorting, "argsort", counted)
    monkeypatch.setattr(first_few, "copied", counted_copy)
    x = np.random.default_rng(0).standard_normal(shape)
    first_few.BLOCK["top_rows"](np, x, params=(k, True))
    assert sum(sizes) == k * (x.size // x.shape[-1])
    # Of a long row few are compared with each other, and of others each once.
    assert sum(parted) == x.size if len(shape) > 1 else sum(parted) < 200
