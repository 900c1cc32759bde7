"""``initial=`` and ``out=`` of reductions: where no dtype is asked for, that of the output has a say in it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

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


INTO: dict[str, tuple[Any, tuple[int, ...]]] = {
    **{
        name: (
            lambda xp, x, name=name, **options: getattr(xp, name)(x, axis=0, **options),
            (4, 3) if name.startswith("cum") else (3,),
        )
        for name in ("sum", "mean", "std", "var", "nanmean", "nanstd", "nanvar", "ptp", "cumsum", "cumprod")
    },
    "mean without axes": (lambda xp, x, **options: xp.mean(x, **options), ()),
    "std without axes": (lambda xp, x, **options: xp.std(x, ddof=1, **options), ()),
    "some": (lambda xp, x, **options: xp.var(x, axis=0, where=[[True], [False], [True], [True]], **options), (3,)),
    "method": (lambda xp, x, **options: x.mean(0, **options), (3,)),
    "trace": (lambda xp, x, **options: xp.trace(x, **options), ()),
    "einsum": (lambda xp, x, **options: xp.einsum("ij,ik->jk", x, x, **options), (3, 3)),
    "einsum of one": (lambda xp, x, **options: xp.einsum("ij->j", x, **options), (3,)),
    "einsum of axes": (lambda xp, x, **options: xp.einsum("ij->ji", x, **options), (3, 4)),
    "round": (lambda xp, x, **options: xp.round(x, 1, **options), (4, 3)),
}


@pytest.mark.parametrize("tiles", some([3, 1]))
@pytest.mark.parametrize("name", INTO)
def test_the_steps_of_what_goes_into_an_array_are_taken_in_its_dtype(name: str, tiles: int) -> None:
    function, shape = INTO[name]
    values = np.array([[0, 2.5, 3], [1, 40, 9], [7, 1.25, 0], [3, 30, 100]])
    for dtype in ("?", "i4", "f4", "c8"):
        for target in ("i8", "f4", "f8"):
            for asked in (None,) if name == "round" else (None, "i4", "f8"):
                x, options = values.astype(dtype), {} if asked is None else {"dtype": np.dtype(asked)}

                def call(xp: Any, make: Any, out: Any, x: Any = x, options: Any = options) -> Any:
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        try:
                            return function(xp, make(x), out=out, **options)
                        except (TypeError, ValueError) as error:
                            return error

                expected = call(np, np.asarray, np.ones(shape, target))
                for out in (dx.asarray(np.ones(shape, target)), np.ones(shape, target)):
                    with force_tiles(tiles):
                        found = call(dx, dx.asarray, out)
                    if isinstance(expected, BaseException):
                        assert isinstance(found, BaseException), (dtype, target, asked)
                        kind = TypeError if isinstance(expected, TypeError) else ValueError
                        assert isinstance(found, kind), (dtype, target, asked)
                        np.testing.assert_array_equal(out, np.ones(shape, target))
                        continue
                    assert found is out, (dtype, target, asked, found)
                    np.testing.assert_allclose(
                        np.asarray(out),
                        expected,
                        rtol=1e-6 if "f4" in (target, asked) else 1e-13,
                        err_msg=f"{dtype} {asked}",
                    )


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd"])
def test_where_none_counts_nothing_of_what_is_not_nan(name: str) -> None:
    _compare(lambda xp, make: getattr(xp, name)(make(np.array([1.0, np.nan, 3.0])), where=None))


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("shape", [(5, 300), (3, 4, 257), (0, 300), (300, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["?", "i2", "f2", "f8", "m8[s]"])
@pytest.mark.parametrize("name", ["add", "maximum", "logical_or"])
def test_scans_of_long_rows_are_numpys(name: str, dtype: str, shape: tuple[int, ...], tiles: int) -> None:
    """Row by row, in the dtype that numpy's scan has."""
    host = (np.arange(math.prod(shape)).reshape(shape) * 7 % 11 % 5).astype(dtype)
    if name == "logical_or" and dtype == "m8[s]":
        pytest.skip("times have no truth values")
    with dx.config.set(eager_bytes=0), force_tiles(tiles):
        for axis in range(len(shape)):
            for x in (host, host[::-1]):
                made = getattr(dx, name).accumulate(dx.asarray(x), axis=axis)
                assert_equal(made, getattr(np, name).accumulate(x, axis=axis))


@pytest.mark.parametrize("shape", [(20, 300), (20, 1000), (20, 10)], ids=str)
@pytest.mark.parametrize(("name", "dtype"), [("multiply", "c8"), ("multiply", "c16"), ("fmax", "f8"), ("fmin", "f8")])
def test_scans_of_rows_have_the_bits_of_numpys_whatever_their_length(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    """Kernels for rows round products of complex numbers, and choose among zeros, by another way than those for one."""
    rng = np.random.default_rng(3)
    host = rng.choice([0.0, -0.0, 1.0, 2.0], shape) if dtype == "f8" else rng.normal(size=(*shape, 2)) @ [1, 1j]
    host = host.astype(dtype)
    expected = getattr(np, name).accumulate(host, axis=0)
    with dx.config.set(eager_bytes=0):
        made = np.asarray(getattr(dx, name).accumulate(dx.asarray(host), axis=0))
    assert made.tobytes() == expected.tobytes()
