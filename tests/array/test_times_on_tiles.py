"""Times on any number of tiles, empty ones too: no neutral element of a kernel is taken for a time."""

import warnings

import numpy as np
import pytest

import distarray as dx

FUNCTIONS = {
    "max": lambda xp, x: xp.max(x),
    "min": lambda xp, x: xp.min(x),
    "max of rows": lambda xp, x: xp.max(x, axis=1),
    "min of columns": lambda xp, x: xp.min(x, axis=0),
    "argmax": lambda xp, x: xp.argmax(x, axis=0),
    "argmin": lambda xp, x: xp.argmin(x, axis=0),
    "ptp": lambda xp, x: xp.ptp(x, axis=0),
    "nanmax": lambda xp, x: xp.nanmax(x, axis=0),
    "nanmin": lambda xp, x: xp.nanmin(x, axis=0),
    "fmax": lambda xp, x: np.fmax.reduce(x, axis=0),
    "maximum.accumulate": lambda xp, x: np.maximum.accumulate(x, axis=0),
    "minimum.accumulate": lambda xp, x: np.minimum.accumulate(x, axis=0),
    "maximum.reduceat": lambda xp, x: np.maximum.reduceat(x, [0, 2, 1], axis=0),
    "sort": lambda xp, x: xp.sort(x, axis=0),
    "argsort": lambda xp, x: xp.argsort(x, axis=0, kind="stable"),
    "unique": lambda xp, x: xp.unique(x),
    "median": lambda xp, x: xp.median(x, axis=0),
    "searchsorted": lambda xp, x: xp.searchsorted(xp.sort(x.ravel()), x.ravel()),
    "diff": lambda xp, x: xp.diff(x, axis=0),
    "max where": lambda xp, x: xp.max(x, axis=0, where=x >= x[:1], initial=x[0, 0]),
    "sum": lambda xp, x: xp.sum(x, axis=0),
    "cumsum": lambda xp, x: xp.cumsum(x, axis=0),
    "mean": lambda xp, x: xp.mean(x, axis=0),
    "any": lambda xp, x: xp.any(x, axis=0),
}


def _outcome(function, xp, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = np.asarray(function(xp, x))
        except (TypeError, ValueError) as error:
            return type(error).__mro__[-4:]
    return made.dtype, made.shape, made.tobytes()


@pytest.mark.parametrize("n_tiles", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["m8[s]", "M8[D]"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_reductions_and_sorts_are_numpys(function, dtype, n_tiles):
    team = dx.Team((n_tiles,), ("T",))
    for values in ([[5, -7], [3, 2], [1, 9], [4, 4], [-2, 0]], [[5, 1], [-(2**63), 2], [3, -(2**63)]], [[-8, -9]] * 4):
        host = np.array(values).astype(dtype)
        x = dx.asarray(host, team=team, sharding=("T", None))
        assert _outcome(function, dx, x) == _outcome(function, np, host), values


@pytest.mark.parametrize("n_tiles", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["m8[s]", "M8[D]"])
def test_segments_are_those_of_integers(dtype, n_tiles):
    team = dx.Team((n_tiles,), ("T",))
    numbers = np.array([5, -3, 1, 7, -2])
    labels = [0, 0, 1, 3, 3]
    x, i = (dx.asarray(host, team=team, sharding=("T",)) for host in (numbers.astype(dtype), numbers))
    used = [0, 1, 3]
    for func in ("max", "min", "first", "last"):
        made = np.asarray(dx.segment_reduce(x, labels, 4, func=func))
        assert made.dtype == dtype
        assert (made.astype("i8")[used] == np.asarray(dx.segment_reduce(i, labels, 4, func=func))[used]).all()
        assert not np.isnat(made).any()


@pytest.mark.parametrize(
    ("given", "meant"),
    [("7000ms", "7s"), ("1000ns", "us"), ("3000000us", "3s"), ("1500ms", "1500ms"), ("60s", "60s"), ("24h", "24h")],
)
@pytest.mark.parametrize("kind", ["m8", "M8"])
def test_equal_units_are_one_dtype(kind, given, meant):
    """numpy says that ``m8[7000ms]`` equals ``m8[7s]`` and not the other way round: a table by dtypes would find one in
    the place of the other, whose numbers would mean other times.
    """
    host = np.array([1, -2], f"{kind}[{given}]")
    x = dx.asarray(host)
    assert str(x.dtype) == str(np.dtype(f"{kind}[{meant}]"))
    np.testing.assert_array_equal(np.asarray(x), host)
    y = dx.asarray(host.astype(f"{kind}[{meant}]"))
    assert str(y.dtype) == str(dx.zeros(2, dtype=f"{kind}[{meant}]").dtype) == str(x.dtype)
    assert bool((x == y).all())
    assert str(dx.result_type(x.dtype, f"{kind}[21s]")) == str(np.result_type(x.dtype, f"{kind}[21s]"))


@pytest.mark.parametrize("dtype", ["m8[7s]", "m8[7000ms]", "M8[1000us]"])
def test_times_of_equal_units_are_not_copied(dtype):
    host = np.arange(4).astype(dtype)
    x = dx.asarray(host, copy=False)
    host[0] = 9  # which shows what memory is read
    np.testing.assert_array_equal(np.asarray(x), host)


def test_attributes_of_numbers_are_none_of_arrays():
    x = dx.asarray([1.0, 2.0])
    for array, name in ((x, "is_integer"), (x.max(), "bit_count"), (x.max() > 0, "is_integer")):
        assert not hasattr(array, name)
