"""Whatever is written, through whichever door: numpy's elements, warnings and kinds of errors."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting, force_tiles


class OfArray:
    def __array__(self, dtype=None, copy=None):
        return np.array(5.0, dtype)


class OfFloat:
    def __float__(self):
        return 2.5


class OfBoth(OfFloat, OfArray):
    pass


class OfIndex:
    def __index__(self):
        return 3


VALUES = [
    OfArray(), OfFloat(), OfBoth(), OfIndex(), np.ma.masked, np.ma.array([1.0, 2.0]), np.ma.array(3.0), "3.5", "a",
    b"2", np.str_("4"), np.float32(1.5), np.complex64(1 + 2j), np.array(2), np.array([2]), np.array([1, 2]),
    np.array([]), [], [1], [1, 2], (3,), None, np.datetime64("2020-01-01"), np.timedelta64(3, "s"), Fraction(1, 2),
    Decimal("1.5"), np.array("3"), np.array(None), object(), {}, set(), np.bool_(True), 10**30, -1, np.int64(300),
    float("nan"), 1.5, 1j, True, range(1), range(2), [[1, 2]], [1j, 2], [None, 1],
]  # fmt: skip


def _set(index):
    def write(xp, x, value):
        x[index] = value

    return write


def _masked(xp, x, value):
    x[x == 0] = value


DOORS = {
    "an element": _set((1, 1)),
    "a slice": _set((slice(1, 2), 0)),
    "everything": _set(...),
    "a row": _set(1),
    "positions": _set([0, 1]),
    "a mask": _masked,
    "fill": lambda xp, x, value: x.fill(value),
    "put": lambda xp, x, value: xp.put(x, [0, 1], value),
    "place": lambda xp, x, value: xp.place(x, x == 0, value),
    "putmask": lambda xp, x, value: xp.putmask(x, x == 0, value),
    "copyto": lambda xp, x, value: xp.copyto(x, value),
}


def _outcome(xp, write, dtype, value):
    x = xp.asarray(np.zeros((3, 2), dtype))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            write(xp, x, value)
        except Exception as error:
            return type(error), np.asarray(x).tobytes()
    # Masked arrays warn of fill values that they remember of earlier casts, NumPy 2.5 of bare integers beside spans.
    given = [w for w in given if not w.filename.endswith("core.py") and "'generic' unit" not in str(w.message)]
    return np.asarray(x).tobytes(), [w.category for w in given]


@pytest.mark.parametrize("dtype", ["f8", "i1", "u2", "?", "c8", "m8[s]", "M8[D]", "f2"])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("options", [{}, {"eager_bytes": 0, "block_bytes": 0}], ids=["small", "planned"])
def test_what_is_written_is_what_numpy_writes(options, door, dtype):
    different = {}
    for value in VALUES:
        if isinstance(value, OfArray) and door in (DOORS["positions"], DOORS["a mask"]) and dtype in ("m8[s]", "M8[D]"):
            continue  # numpy takes it for a number, not for its array, in these two dtypes alone
        with dx.config.set(options):
            expected, found = (_outcome(xp, door, dtype, value) for xp in (np, dx))
        if found != expected:
            different[repr(value)] = expected, found
    assert not different


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize(
    "write",
    [
        lambda xp, x: x.__setitem__(x, x[::-1]),
        lambda xp, x: x.__setitem__(x[::-1], x),
        lambda xp, x: x.__setitem__(xp.asarray([0, 2, 0]), x[3:6]),
        lambda xp, x: xp.add.at(x, x, x),
        lambda xp, x: xp.subtract.at(x, x[::2], x[1::2]),
        lambda xp, x: x.__setitem__(xp.asarray([-1, 0, -7]), 5),
    ],
)
def test_what_is_written_and_where_may_be_the_array_itself(tiles, write):
    a = np.array([3, 0, 6, 1, 2, 5, 4, 7])
    for eager_bytes in (0, 1 << 20):
        with force_tiles(tiles), dx.config.set(eager_bytes=eager_bytes):
            x, expected = dx.asarray(a), a.copy()
            write(dx, x)
            write(np, expected)
            np.testing.assert_array_equal(np.asarray(x), expected)


def test_a_write_at_positions_of_one_tile_is_one_task():
    """Nothing is looked for, and what is written is read where it lies; indices are looked at once."""
    n = 1 << 21
    x, at, values = dx.zeros(n), dx.asarray(np.arange(0, n, 2)), dx.asarray(np.arange(n / 2))
    with counting() as c:
        x[at] = values
        x.persist()
    assert (c.by_class["tile"], c.tasks) == (1, 1)
    np.testing.assert_array_equal(np.asarray(x[::2]), np.arange(n / 2))


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("eager_bytes", [0, 1 << 20])
def test_positions_are_those_of_the_call(tiles, eager_bytes):
    """Whoever writes to them later: the array, its owner's memory, or the memory that it was handed out as."""
    n = 8
    a, reverse = np.arange(n) * 2, np.arange(n)[::-1].copy()
    with force_tiles(tiles), dx.config.set(eager_bytes=eager_bytes):
        x, at = dx.asarray(a), dx.asarray(reverse)
        y = x[at]
        at[:] = 0
        np.testing.assert_array_equal(np.asarray(y), a[::-1])

        owned = reverse.copy()
        y = x[dx.asarray(owned)] + x[owned]
        owned[:] = 0
        np.testing.assert_array_equal(np.asarray(y), 2 * a[::-1])

        at = dx.asarray(reverse)
        memory = np.asarray(at)
        y, z = x[at], dx.asarray(a)
        z[at] = 5 * x
        if memory.flags.writeable:
            memory[:] = -1
            np.testing.assert_array_equal(np.asarray(x[at]), np.full(n, a[-1]))
            memory[:] = n
            for call in (lambda: np.asarray(x[at]), lambda: x.__setitem__(at, 1)):
                with pytest.raises(IndexError, match="out of bounds"):
                    call()
        np.testing.assert_array_equal(np.asarray(y), a[::-1])
        np.testing.assert_array_equal(np.asarray(z), 5 * a[::-1])
        np.testing.assert_array_equal(np.asarray(x), a)
