"""``view``, ``byteswap``, ``strides``, ``flags``, ``base`` and ``data``: as of the array that numpy would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import distarray as dx
from distarray.testing import force_tiles


@pytest.fixture(autouse=True, params=[1, 3], ids=["one tile", "three tiles"])
def _tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with force_tiles(request.param):
        yield


def pair(host: Any) -> tuple[Any, Any]:
    return host, dx.asarray(host.copy())


def test_a_view_of_bits_is_written_through() -> None:
    a, x = pair(np.arange(24.0).reshape(4, 6))
    v, w = a.view("i8"), x.view("i8")
    v[1:3], w[1:3] = 7, 7
    a[0], x[0] = 3, 3
    w.T[::2].view("u8")[...] += 1
    v.T[::2].view("u8")[...] += 1
    assert w.dtype == np.int64
    np.testing.assert_array_equal(w, v)
    np.testing.assert_array_equal(x, a)
    assert dx.shares_memory(x, w)


def test_views_of_parts_of_complex_numbers() -> None:
    a, x = pair(np.arange(6) + 1j * np.arange(6))
    for each in (a, x):
        each.real.view("i8")[2] = 5
        each.imag.view("i8")[:2] = 1
    np.testing.assert_array_equal(x, a)


VIEWS = {
    "halves": ("f8", lambda a: a.view("f4")),
    "bytes": ("i4", lambda a: a.view("u1")),
    "pairs": ("f8", lambda a: a.view("c16")),
    "parts": ("c16", lambda a: a.view("f8")),
    "a dimension less": ("u1", lambda a: a.view("u2")[:, 0]),
    "dates": ("i8", lambda a: a.view("M8[s]")),
    "bool": ("?", lambda a: a.view("u1")),
    "alias": ("f8", lambda a: a.view()),
    "class": ("f8", lambda a: a.view(np.ndarray)),
    "swapped": ("i4", lambda a: a.byteswap()),
    "swapped complex": ("c16", lambda a: a.byteswap()),
    "swapped in place": ("f4", lambda a: a.byteswap(inplace=True)),
    "put": ("f8", lambda a: (a.put([1, 3], [7, 8]), a)[1]),
    "choose": ("f8", lambda a: (a > 5).choose([a, -a])),
}


@pytest.mark.parametrize("name", VIEWS)
def test_bits_are_numpys(name: str) -> None:
    dtype, call = VIEWS[name]
    a, x = pair((np.arange(24).reshape(4, 6) % 7).astype(dtype))
    made, expected = call(x), call(a)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(made, expected)


def test_views_are_lazy_and_splits_are_not_written() -> None:
    x = dx.arange(12.0).reshape(3, 4)
    with dx.config.set(eager_bytes=0), dx.testing.counting() as c:
        y = x + 1
        y.view("i8")[0] = 3
        parts = y.view("f4")
        assert c.evaluations == 0
    assert parts.shape == (3, 8)
    with pytest.raises(ValueError, match="read-only"):
        parts[0] = 1


WRONG: dict[str, Callable[[Any], Any]] = {
    "not contiguous": lambda x: x.T.view("f4"),
    "no whole number": lambda x: x[:, :3].copy().view("c16"),
    "no axes": lambda x: x[0, 0].copy().view("f4"),
    "objects": lambda x: x.view("O"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_views_are_refused_as_numpys(name: str) -> None:
    a, x = pair(np.ones((4, 6)))
    with pytest.raises((TypeError, ValueError)) as theirs:
        WRONG[name](a)
    with pytest.raises(theirs.type):
        WRONG[name](x)


SEEN: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x.T,
    lambda x: x[1:, ::2],
    lambda x: x[:, None],
    lambda x: x.reshape(-1),
    lambda x: x[::-1],
    lambda x: x[0],
    lambda x: x[1:1],
    lambda x: x.view("i8").T,
    lambda x: x.copy(),
]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 2, 1)])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_strides_of_nothing_are_numpys(shape: tuple[int, ...], k: int) -> None:
    seen = [lambda x: x, lambda x: x.T, lambda x: x[..., ::-1]][k]
    for dtype in ("f8", "c8", "u1"):
        a, x = np.zeros(shape, dtype), dx.zeros(shape, dtype)
        assert seen(x).strides == seen(a).strides
        assert seen(x).flags.c_contiguous == seen(a).flags.c_contiguous


@pytest.mark.parametrize("k", range(len(SEEN)))
def test_strides_and_flags_are_numpys(k: int) -> None:
    a, x = pair(np.ones((4, 6)))
    p, q = SEEN[k](a), SEEN[k](x)
    assert q.strides == p.strides
    names = "c_contiguous f_contiguous fortran owndata writeable aligned fnc forc behaved carray"
    for name in names.split():
        assert getattr(q.flags, name) == getattr(p.flags, name), name
    for name in ("C", "F_CONTIGUOUS", "OWNDATA", "W", "CA"):
        assert q.flags[name] == p.flags[name]
    assert str(q.flags) == str(p.flags)
    assert (q.base is None) == (p.base is None)


@pytest.mark.parametrize("write", [None, False, True, 1, 0, "11"])
def test_setflags_is_numpys(write: Any) -> None:
    for start in (True, False):
        x, a = dx.arange(6), np.arange(6)
        for each in (x, a):
            each.setflags(write=start)
            each.setflags(write, align=True)
        assert x.flags.writeable == x[1:3].flags.writeable == a.flags.writeable
        if not a.flags.writeable:
            with pytest.raises(ValueError, match="read-only"):
                x[2] = 1
            with pytest.raises(ValueError, match="read-only"):
                x += 1
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="WRITEBACKIFCOPY"):
        x.setflags(uic=True)
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag to True of this array: it sees elements"):
        dx.broadcast_to(x, (2, 6)).setflags(write=True)


def test_base_is_the_whole_array_and_flags_of_memory_are_not_set() -> None:
    x = dx.arange(6.0)
    x[1:3].base[0] = 9
    assert float(x[0]) == 9
    with pytest.raises(AttributeError, match="read-only"):
        x.flags.owndata = False
    with pytest.raises(KeyError):
        x.flags["nonsense"]
    with pytest.raises(ValueError, match="several times"):
        dx.broadcast_to(x, (2, 6)).flags.writeable = True
    assert not dx.broadcast_to(x, (2, 6)).flags.writeable
    assert x.data.tolist() == [9, 1, 2, 3, 4, 5]
    assert x.data.readonly is not np.asarray(x).flags.writeable
    assert dx.broadcast_to(x, (2, 6)).data.readonly
    assert (x.real.strides, (x + 1j).imag.strides) == ((8,), (16,))


def _strided(m: Any, name: str) -> Any:
    """Return what NumPy's function makes of an array and its strides, of views of what may be pending."""
    lattice = m.arange(36.0).reshape(6, 6)
    twelve = m.arange(12.0).reshape(3, 4)
    x, shape, factor = {
        "every other": (m.arange(20.0)[::2], (8, 3), 2),
        "patches": (lattice[1:, 1:], (4, 4, 2, 2), 2),
        "inner patches": ((lattice + 0)[1:-1, 1:-1], (3, 3, 2, 2), 2),
        "backwards": (m.arange(12.0)[::-1], (3,), 1),
        "twice": ((m.arange(20.0)[::2] * 1)[::2], (3, 2), 2),
        "turned": ((twelve + 1).T, (3, 3), 1),
        "turned rows": (twelve.T[1:], (2, 3), 1),
    }[name]
    return as_strided(x, shape, x.strides * (factor if len(x.strides) * factor == len(shape) else 1))


@pytest.mark.parametrize("eager_bytes", [0, 1 << 20])
@pytest.mark.parametrize(
    "name", ["every other", "patches", "inner patches", "backwards", "twice", "turned", "turned rows"]
)
def test_strides_are_those_of_the_memory_that_numpy_gets(name: str, eager_bytes: int) -> None:
    """A view of what was pending was a compact copy, with other strides: NumPy read memory of somebody else."""
    with dx.config.set(eager_bytes=eager_bytes):
        np.testing.assert_array_equal(np.asarray(_strided(dx, name)), _strided(np, name))


def test_a_view_reaches_what_lies_before_it_in_its_base() -> None:
    """As `scipy.linalg.toeplitz` has it: rows that begin one element earlier each."""
    for m in (np, dx):
        v = m.concatenate([m.arange(4.0)[::-1], m.arange(3.0) + 9])
        (step,) = v.strides
        found = as_strided(v[3:], (4, 4), (-step, step))
        assert np.asarray(found)[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.cluster
def test_strides_on_a_cluster_are_those_of_what_comes_here(cluster4: Any) -> None:
    x, a = dx.arange(40.0, sharding=("x",))[::2], np.arange(40.0)[::2]
    assert np.asarray(x).strides == (8,)  # as long as nobody asks, what is shown is all that comes
    np.testing.assert_array_equal(as_strided(x, (8, 3), x.strides * 2), as_strided(a, (8, 3), a.strides * 2))
