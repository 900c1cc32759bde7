"""``initial=`` and ``out=`` of reductions: where no dtype is asked for, that of the output has a say in it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import force_tiles

VALUES = [[1, 0, 3], [4, 1, 6]]


def _compare(call: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = call(np, np.array)
        found = np.asarray(call(dx, dx.asarray))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "amax", "amin"])
@pytest.mark.parametrize("dtype", some(["i4", "f4", "f8", "u1", "c8"]))
@pytest.mark.parametrize("out", [None, "f8", "f4", "i8", "i4"])
@pytest.mark.parametrize("tiles", [1, 3])
def test_initial_counts_in_the_dtype_of_out(name: str, dtype: str, out: str | None, tiles: int) -> None:
    for initial in (0.5, 2, np.float64(2.5)):
        for where in (None, [[True, False, True], [True, True, False]]):

            def call(xp: Any, make: Any, initial: Any = initial, where: Any = where) -> Any:
                options: dict[str, Any] = {} if where is None else {"where": where}
                if out is not None:
                    options["out"] = make(np.zeros(3, out))
                return getattr(xp, name)(make(np.array(VALUES, dtype)), axis=0, initial=initial, **options)

            with force_tiles(tiles):
                _compare(call)


@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat"])
def test_products_of_integers_into_floats_do_not_overflow(method: str) -> None:
    big = np.array([2**40, 2**40, 2**40])

    def call(xp: Any, make: Any) -> Any:
        x = make(big)
        if method == "reduce":
            return np.multiply.reduce(x, out=make(np.zeros(())))
        if method == "accumulate":
            return np.multiply.accumulate(x, out=make(np.zeros(3)))
        return np.multiply.reduceat(x, [0, 1], out=make(np.zeros(2)))

    _compare(call)


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_sums_and_products_compute_in_the_dtype_of_out(name: str) -> None:
    big = np.array([2**62, 2**62, 2**62])
    shape = (3,) if name.startswith("cum") else ()
    _compare(lambda xp, make: getattr(xp, name)(make(big), out=make(np.zeros(shape))))
    _compare(lambda xp, make: getattr(make(big), name)(out=make(np.zeros(shape))))
