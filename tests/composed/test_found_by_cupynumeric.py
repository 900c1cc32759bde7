"""Calls that NumPy takes, found by cuPyNumeric's own tests: fractions, `out` of more elements, flags that are set."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx


def compared(call: Any) -> None:
    """Both do the same: a result, what was written, or an error of the same type."""
    try:
        expected = call(np)
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        with pytest.raises(type(error)):
            call(dx)
        return
    made = call(dx)
    for ours, theirs in zip(*[x if isinstance(x, tuple) else (x,) for x in (made, expected)], strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def put(xp: Any, at: Any, mode: str = "raise") -> Any:
    x = xp.arange(5)
    xp.put(x, at, 9, mode=mode)
    return x


POSITIONS = [
    1.9,
    -1.9,
    [0, 2.7],
    [[1.2], [True]],
    np.float64(2.5),
    np.array([1.5]),
    1j,
    np.nan,
    [np.inf],
    None,
    [],
    2**70,
]


@pytest.mark.parametrize("at", POSITIONS, ids=str)
def test_numbers_as_positions_lose_their_fraction_and_arrays_do_not(at: Any) -> None:
    compared(lambda xp: xp.take(xp.arange(5), at))
    compared(lambda xp: xp.arange(5).take(at, mode="clip"))
    compared(lambda xp: put(xp, at))
    compared(lambda xp: put(xp, at, "wrap"))
    if np.ndim(at) < 2:
        compared(lambda xp: xp.repeat(xp.arange(1), at) if not np.any(np.abs(at or 0) > 99) else xp.repeat(1, 1))


@pytest.mark.parametrize("k", [-10.5, -2.5, -0.5, 0.0, 1.0, 2.5, 10.5])
def test_diagonals_of_triangles_lose_their_fraction(k: float) -> None:
    compared(lambda xp: xp.tri(4, 5, k))
    compared(lambda xp: xp.tril(xp.ones((4, 5)), k))
    compared(lambda xp: xp.triu(xp.ones((2, 4, 3)), k=k))
    compared(lambda xp: xp.tril_indices(4, k))
    compared(lambda xp: xp.triu_indices_from(xp.ones((3, 4)), k))


def test_a_diagonal_between_the_main_and_the_next_is_refused() -> None:
    assert np.tri(3, k=0.5).all()  # of which there is no diagonal
    with pytest.raises(TypeError, match=r"k=0\.5 must be an integer"):
        dx.tri(3, k=0.5)
    with pytest.raises(TypeError, match=r"k=1\.5 must be an integer"):
        dx.triu(dx.ones((3, 3)), 1.5)


@pytest.mark.parametrize("n", [-10.5, 0.0, 3.5, 4.0])
def test_extents_of_triangles_are_those_of_arange(n: float) -> None:
    compared(lambda xp: xp.tri(n))
    compared(lambda xp: xp.tri(3, n))
    compared(lambda xp: xp.tril_indices(n))
    compared(lambda xp: xp.triu_indices(3, m=n))
    compared(lambda xp: xp.diag_indices(n))


INTO: dict[str, Any] = {
    "isposinf": lambda xp, out: xp.isposinf(xp.asarray(np.inf), out=out),
    "isneginf": lambda xp, out: xp.isneginf(xp.asarray([-np.inf]), out=out),
    "fix": lambda xp, out: xp.fix(xp.asarray(2.5), out=out),
    "clip": lambda xp, out: xp.clip(xp.asarray(3.0), 0, 2, out=out),
    "einsum": lambda xp, out: xp.einsum("a->a", xp.ones(1), out=out),
    "round": lambda xp, out: xp.round(xp.asarray(2.6), out=out),
    "sum": lambda xp, out: xp.sum(xp.ones(3), out=out),
    "take": lambda xp, out: xp.take(xp.ones(3), [0], out=out),
}


@pytest.mark.parametrize("name", INTO)
def test_results_of_ufuncs_fill_an_out_of_more_elements(name: str) -> None:
    def call(xp: Any) -> Any:
        out = xp.zeros(4)
        INTO[name](xp, out)
        return out

    compared(call)


def test_functions_that_copy_elements_cast_into_out_as_numpys() -> None:
    compared(lambda xp: xp.compress([True, True], xp.asarray([1.5, 2.5, 3.5]), out=xp.zeros(2, dtype=int)))
    compared(lambda xp: xp.asarray([1.5, 2.5]).compress([False, True], out=xp.zeros(1, dtype=int)))
    compared(lambda xp: xp.compress([True], xp.arange(2), out=xp.zeros(1)))
    compared(lambda xp: xp.choose(xp.asarray([0, 1]), [xp.asarray([1, 2])] * 2, out=xp.zeros(2)))
    compared(lambda xp: xp.concatenate([xp.ones(2), xp.ones(2)], out=xp.zeros(4), dtype="f4"))


def test_a_list_of_slices_is_a_grid() -> None:
    compared(lambda xp: xp.mgrid[[slice(0, 4, 1.5), slice(3, 5, None)]])
    compared(lambda xp: xp.ogrid[[slice(0, 4), slice(None, 3, 2j)]])


def test_positions_of_ix_are_arrays_of_ours() -> None:
    rows, columns = dx.ix_([0, 2], [True, False, True])
    assert type(rows) is type(columns) is dx.DistArray
    x = dx.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(x[rows, columns], [[0, 2], [6, 8]])
    compared(lambda xp: xp.ix_([0, 1], [], [3]))


def test_whether_elements_may_be_written_is_set_by_a_flag() -> None:
    x = dx.arange(3)
    x.flags.writeable = False
    assert not x.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1
    x.flags["W"] = True
    x[0] = 7
    assert x[0] == 7
    with pytest.raises(AttributeError, match=r"flags\.owndata is read-only"):
        x.flags.owndata = True
    with pytest.raises(KeyError, match="Unknown flag"):
        x.flags["OWNDATA"] = True


def test_shifts_are_no_matrices() -> None:
    with pytest.raises(ValueError, match="'shift' and 'axis' should be scalars or 1D sequences"):
        dx.roll(dx.ones((2, 3)), [[1, 2]], 0)
    with pytest.raises(TypeError, match="axis="):
        dx.roll(dx.ones((2, 3)), 1, [[0]])


def test_dumps_are_pickles(tmp_path: Path) -> None:
    x = dx.arange(4.0)
    x.dump(tmp_path / "x")
    with (tmp_path / "y").open("wb") as file:
        x.dump(file)
    assert (pickle.loads(x.dumps()) == x).all()
    assert all((pickle.loads((tmp_path / name).read_bytes()) == x).all() for name in "xy")
