"""``vectorize`` and ``frompyfunc``: numpy is the oracle, as far as results are no Python objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

X = np.arange(12.0).reshape(3, 4)


def larger(a: Any, b: Any, c: Any = 0) -> Any:
    """Take the larger one."""
    return a if a > b else b + c


CALLS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "dtype found": lambda m, c: m.vectorize(larger)(c(X), c(X[::-1])),
    "dtype said": lambda m, c: m.vectorize(larger, otypes="f")(c(X), 3, c=5),
    "list of dtypes": lambda m, c: m.vectorize(larger, otypes=[np.float64])(c(X), 3),
    "by name": lambda m, c: m.vectorize(larger)(c(X), b=3.5, c=c(X[0])),
    "excluded": lambda m, c: m.vectorize(larger, excluded=["c", 1])(c(X), 3, c=5),
    "two results": lambda m, c: m.vectorize(lambda a: (a, int(a)))(c(X)),
    "two results said": lambda m, c: m.vectorize(lambda a: (a, int(a)), otypes="di")(c(X)),
    "vectors": lambda m, c: m.vectorize(np.dot, signature="(i),(i)->()")(c(X), c(X[0])),
    "matrices": lambda m, c: m.vectorize(np.outer, signature="(i),(j)->(i,j)")(c(X), c(X[0])),
    "new extent": lambda m, c: m.vectorize(lambda x: np.concatenate([x, x]), signature="(n)->(m)")(c(X)),
    "vectors, two results": lambda m, c: m.vectorize(lambda x: (x.sum(), x.max()), signature="(n)->(),()")(c(X)),
    "nothing": lambda m, c: m.vectorize(larger, otypes="d")(c(X[:0]), 1),
    "nothing, dtype unknown": lambda m, c: m.vectorize(larger)(c(X[:0]), 1),
    "letters": lambda m, c: m.vectorize(larger, otypes="zz"),
    "no function": lambda m, c: m.vectorize(3)(c(X), 1),
    "numbers": lambda m, c: m.vectorize(larger)(1, 2),
    "decorator": lambda m, c: m.vectorize(otypes="d")(larger)(c(X), 1),
    "shapes": lambda m, c: m.vectorize(larger, otypes="d")(c(X), c(np.ones(3))),
}


@pytest.mark.parametrize("n_tiles", [1, 3])
@pytest.mark.parametrize("name", CALLS)
def test_functions_of_numbers_are_called_for_each_element(name: str, n_tiles: int) -> None:
    try:
        expected = CALLS[name](np, np.asarray)
    except Exception as error:  # numpy's, whatever it is
        with pytest.raises(type(error)):
            CALLS[name](dx, dx.asarray)
        return
    with force_tiles(n_tiles):
        made = CALLS[name](dx, dx.asarray)
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (made, expected)), strict=True):
            np.testing.assert_array_equal(a, b)
            assert (a.dtype, a.shape) == (np.asarray(b).dtype, np.shape(b))


def test_objects_are_refused_with_the_way_out() -> None:
    x = dx.ones(3)
    with pytest.raises(dx.NotSupportedError, match="otypes="):
        dx.vectorize(str)(x)
    with pytest.raises(dx.NotSupportedError, match="dtype="):
        dx.frompyfunc(larger, 2, 1)(x, 2)


def test_frompyfunc_takes_the_dtype_of_its_results() -> None:
    function = dx.frompyfunc(lambda a, b: (a + b, a * b), 2, 2)
    assert (function.nin, function.nout, function.nargs) == (2, 2, 4)
    total, product = function(dx.asarray(X), 2, dtype="f4")
    np.testing.assert_array_equal(total, (X + 2).astype("f4"))
    np.testing.assert_array_equal(product, (X * 2).astype("f4"))
    with pytest.raises(TypeError, match="takes 2"):
        function(X)


def test_name_and_docstring_are_the_functions() -> None:
    made = dx.vectorize(larger)
    assert (made.__name__, made.__doc__) == ("larger", "Take the larger one.")


@pytest.mark.parametrize("dtype", ["m8[s]", "m8[ms]", "M8[D]"])
def test_dates_and_time_spans_that_are_called_for_keep_their_unit(dtype: str) -> None:
    if np.lib.NumpyVersion(np.__version__) < "2.4.0":
        pytest.skip("numpy.vectorize keeps the letter of a dtype alone")
    x = dx.arange(6).reshape(2, 3)

    def one(n: Any) -> Any:
        return np.timedelta64(int(n), "s") if dtype[0] == "m" else np.datetime64(int(n), "D")

    def row(block: np.ndarray) -> np.ndarray:
        return np.array([one(n) for n in block[::-1]])

    single = np.array([[one(n) for n in line] for line in x.tolist()], dtype)
    assert_equal(dx.frompyfunc(one, 1, 1)(x, dtype=dtype), single)
    assert_equal(dx.vectorize(one, otypes=[dtype])(x), single)
    rows = single[:, ::-1]
    assert_equal(dx.apply_gufunc(row, "(i)->(i)", x, vectorize=True, output_dtypes=dtype), rows)
    assert_equal(dx.vectorize(row, otypes=[dtype], signature="(i)->(i)")(x), rows)
