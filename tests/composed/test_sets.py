"""Distinct elements and membership are numpy's, whatever the cut (B-9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import calls_made

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

ARRAYS = {
    "integers": np.array([[3, 1, 3], [2, 1, 0]]),
    "nan": np.array([np.nan, 1.0, np.nan, -0.0, 0.0, np.inf]),
    "complex": np.array([1j, 1, 1j, 0]),
    "bool": np.array([True, False, True]),
    "empty": np.array([], np.float32),
    "dates": np.array(["2020-01-02", "2020-01-01", "2020-01-02"], "M8[D]"),
}


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("host", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: xp.sort(xp.unique_values(x)),  # numpy's are in no order
        lambda xp, x: xp.unique_counts(x),
        lambda xp, x: xp.unique_inverse(x),
        lambda xp, x: xp.unique_all(x),
        lambda xp, x: xp.unique(x),
        lambda xp, x: xp.unique(x, return_counts=True),
        lambda xp, x: xp.unique(x, True, True, True),
        lambda xp, x: xp.isin(x, x.ravel()[:2]),
        lambda xp, x: xp.isin(x, x.ravel()[1:], invert=True),
        lambda xp, x: xp.union1d(x, x.ravel()[:2]),
        lambda xp, x: xp.setdiff1d(x, x.ravel()[:1]),
        lambda xp, x: xp.intersect1d(x, x.ravel()[1:]),
        lambda xp, x: xp.nonzero(x),
    ],
)
def test_function_is_numpys(function: Callable[[Any, Any], Any], host: Any, tiles: int) -> None:
    expected = function(np, host)
    with force_tiles(tiles):
        made = function(dx, dx.asarray(host))
    if not isinstance(expected, tuple):
        made, expected = (made,), (expected,)
    assert getattr(made, "_fields", None) == getattr(expected, "_fields", None)
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected):
        # Where equal elements have different bits, any of them stands for all; numpy's sort is not stable.
        assert_equal(ours, theirs)


#: Integers close together are looked up in a table of all between them, others are searched.
SOUGHT: dict[str, tuple[Any, Any]] = {
    "close": (np.arange(-50, 1000), np.arange(0, 900, 7)),
    "all there are": (np.arange(-128, 128, dtype=np.int8), np.arange(-120, 128, dtype=np.int8)),
    "bytes": (np.arange(256, dtype=np.uint8), np.arange(100, 112, dtype=np.int8)),
    "the ends": (np.array([-(2**63), 2**63 - 1, 0, 3]), np.array([*range(12), 2**63 - 1, -(2**63)])),
    "around one end": (
        np.array([-(2**63), 2**63 - 1, 0, 3]),
        np.arange(2**63 - 20, 2**63 - 1, dtype=np.uint64).astype("i8"),
    ),
    "unsigned": (np.array([0, 2**64 - 1, 2**63], "u8"), np.arange(2**63 - 9, 2**63 + 9, dtype=np.uint64)),
    "of two dtypes": (np.arange(300, dtype=np.int16), np.arange(0, 200, 9, dtype=np.uint32)),
    "truth values": (np.array([True, False]), np.zeros(12, bool)),
    "floats": (np.array([np.nan, -0.0, 2.5, np.inf]), np.array([*np.arange(0.5, 9.0), 0.0, np.inf, np.nan])),
    "a number": (np.array(5), np.arange(20)),
    "nothing": (np.zeros((0, 3), int), np.arange(20)),
}


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize(("x", "among"), SOUGHT.values(), ids=SOUGHT)
def test_membership_in_a_large_set_is_numpys(x: Any, among: Any, tiles: int) -> None:
    with dx.config.set(eager_bytes=0), force_tiles(tiles):
        assert_equal(dx.isin(dx.asarray(x), dx.asarray(among)), np.isin(x, among))
        assert_equal(dx.isin(dx.asarray(x), dx.asarray(among[::-1]), invert=True), np.isin(x, among, invert=True))


@pytest.mark.parametrize("name", ["unique", "unique_values", "unique_counts", "unique_inverse", "unique_all"])
def test_counts_can_be_forbidden(name: str) -> None:
    with dx.config.set(data_dependent="raise"), pytest.raises(ValueError, match="depends on data"):
        getattr(dx, name)(dx.arange(3))


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", ["unique", "union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_of_many_half_precision_numbers_are_those_of_single_precision(name: str, is_cut: bool) -> None:
    """NumPy's own of them repeat elements, on processors where its sort leaves these out of order."""
    rng = np.random.default_rng(3)
    hosts = [(rng.integers(low, high, n) / 4).astype("f2") for low, high, n in ((1, 40, 40_000), (-15, 30, 30_000))]
    hosts = hosts[: 1 if name == "unique" else 2]
    where: dict[str, Any] = {"team": dx.Team((4,), ("r",)), "sharding": ("r",)} if is_cut else {}
    found = np.asarray(getattr(dx, name)(*[dx.asarray(h, **where) for h in hosts]))
    expected = getattr(np, name)(*[h.astype("f4") for h in hosts])
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, expected)


def test_few_long_slices_in_tiles_take_no_sort_for_each_of_their_elements() -> None:
    data = np.random.default_rng(0).integers(0, 2, (2000, 5))
    x = dx.asarray(data, team=dx.Team((2,), ("r",)), sharding=(None, "r")).persist()
    found: list[Any] = []
    assert calls_made(lambda: found.extend(dx.unique(x, True, True, True, axis=1))) < 20_000
    for ours, theirs in zip(found, np.unique(data, True, True, True, axis=1), strict=True):
        assert_equal(ours, theirs)
