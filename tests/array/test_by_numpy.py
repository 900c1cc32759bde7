"""What numpy's own function has to the bit: gathers, scatters, joins, sorts and counts of small arrays at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distarray as dx
from distarray.array import by_numpy
from distarray.runtime.counters import counting
from distarray.testing import force_tiles

V = np.arange(20.0).reshape(4, 5) - 7
W = np.array([3, 0, 3, 1, 2])
M = V > 0

FUNCTIONS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "where of one": lambda xp, v, w, m: xp.where(m),
    "take": lambda xp, v, w, m: xp.take(v, w),
    "take along": lambda xp, v, w, m: xp.take(v, w[:2], axis=1),
    "take clip": lambda xp, v, w, m: xp.take(v, w + 30, mode="clip"),
    "take_along_axis": lambda xp, v, w, m: xp.take_along_axis(v, w[None, :] % 4, axis=0),
    "concatenate": lambda xp, v, w, m: xp.concatenate([v, m], axis=1),
    "concatenate flat": lambda xp, v, w, m: xp.concatenate([v, w], axis=None),
    "stack": lambda xp, v, w, m: xp.stack([v, v], axis=1),
    "vstack": lambda xp, v, w, m: xp.vstack([v, w]),
    "hstack": lambda xp, v, w, m: xp.hstack([w, w]),
    "dstack": lambda xp, v, w, m: xp.dstack([v, v]),
    "column_stack": lambda xp, v, w, m: xp.column_stack([w, w]),
    "append": lambda xp, v, w, m: xp.append(w, v),
    "searchsorted": lambda xp, v, w, m: xp.searchsorted(xp.sort(w), v, side="right"),
    "isin": lambda xp, v, w, m: xp.isin(v, w, invert=True),
    "lexsort": lambda xp, v, w, m: xp.lexsort((w, w % 2)),
    "ediff1d": lambda xp, v, w, m: xp.ediff1d(v),
    "select": lambda xp, v, w, m: xp.select([m, v < -3], [v, -v], 9.0),
    "choose": lambda xp, v, w, m: xp.choose(w % 2, [w, -w]),
    "delete": lambda xp, v, w, m: xp.delete(v, [1, 3], axis=1),
    "insert": lambda xp, v, w, m: xp.insert(v, 2, w, axis=0),
    "digitize": lambda xp, v, w, m: xp.digitize(v, xp.sort(w)),
    "bincount": lambda xp, v, w, m: xp.bincount(w, minlength=7),
    "histogramdd": lambda xp, v, w, m: (lambda n, edges: (n, *edges))(
        *xp.histogramdd(v.T[:, :3], (3, 2, [-9.0, 0.0, 9.0]))
    ),
    "histogram2d": lambda xp, v, w, m: xp.histogram2d(v[0], v[1], 4, density=True),
    "nanargmax": lambda xp, v, w, m: xp.nanargmax(v, axis=1),
    "nanargmin": lambda xp, v, w, m: xp.nanargmin(v),
    "argpartition": lambda xp, v, w, m: xp.sort(xp.argpartition(v, 2, axis=1)[:, :2], axis=1),
    "unravel_index": lambda xp, v, w, m: xp.unravel_index(w, (2, 3)),
    "ravel_multi_index": lambda xp, v, w, m: xp.ravel_multi_index((w, w), (4, 4)),
    "nonzero": lambda xp, v, w, m: xp.nonzero(m),
    "argwhere": lambda xp, v, w, m: xp.argwhere(v),
    "flatnonzero": lambda xp, v, w, m: xp.flatnonzero(v),
    "compress": lambda xp, v, w, m: xp.compress(w > 1, v, axis=1),
    "extract": lambda xp, v, w, m: xp.extract(m, v),
    "block": lambda xp, v, w, m: xp.block([[v, v], [v * 2, v]]),
    "unique": lambda xp, v, w, m: xp.unique(w, return_index=True, return_inverse=True, return_counts=True),
    "unique rows": lambda xp, v, w, m: xp.unique(v, axis=0),
    "union1d": lambda xp, v, w, m: xp.union1d(v, w),
    "intersect1d": lambda xp, v, w, m: xp.intersect1d(v, w, return_indices=True),
    "setdiff1d": lambda xp, v, w, m: xp.setdiff1d(v, w),
    "setxor1d": lambda xp, v, w, m: xp.setxor1d(v, w),
    "accumulate": lambda xp, v, w, m: xp.maximum.accumulate(v, axis=1),
    "accumulate of a protocol": lambda xp, v, w, m: np.add.accumulate(w),
    "reduceat": lambda xp, v, w, m: np.maximum.reduceat(v, [0, 2, 1], axis=1),
    "pad": lambda xp, v, w, m: xp.pad(v, ((1, 2), (0, 3)), mode="edge"),
}


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple | list):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for x, y in zip(ours, theirs, strict=True):
            same(x, y)
        return
    assert isinstance(ours, dx.DistArray) and ours.dtype == theirs.dtype and ours.shape == theirs.shape
    np.testing.assert_array_equal(np.asarray(ours), theirs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_numpys_values_and_memory_of_their_own(name: str) -> None:
    function = FUNCTIONS[name]
    given = [V.copy(), W.copy(), M.copy()]
    ours = [dx.asarray(host, copy=True) for host in given]
    theirs = function(np, *given)
    with mock.patch.object(by_numpy, "_boxed", wraps=by_numpy._boxed) as boxed:
        made = function(dx, *ours)
    assert boxed.called  # by numpy's function
    same(made, theirs)
    for each in made if isinstance(made, tuple) else (made,):
        if each.size:
            each[...] = 1
    for x, host in zip(ours, given, strict=True):
        np.testing.assert_array_equal(np.asarray(x), host)
    with force_tiles(2):
        cut = [dx.asarray(host, copy=True) for host in given]
        same(function(dx, *cut), theirs)


def test_what_is_written_to_is_no_operand() -> None:
    a, b = dx.asarray(np.arange(3.0)), dx.asarray(np.arange(3.0))
    out = dx.zeros(6)
    assert dx.concatenate([a, b], 0, out) is out
    np.testing.assert_array_equal(np.asarray(out), [0, 1, 2, 0, 1, 2])
    host = np.zeros(3)
    assert dx.take(a, dx.asarray([2, 1, 0]), out=host) is host
    np.testing.assert_array_equal(host, [2, 1, 0])


def test_options_and_sizes_keep_arrays_from_numpy() -> None:
    w = dx.asarray(W, copy=True)
    with mock.patch.object(by_numpy, "heard") as heard:
        with dx.config.set(data_dependent="raise"), pytest.raises(ValueError, match="depends on data"):
            w[w > 1]
        with dx.config.set(data_dependent="raise"), pytest.raises(ValueError, match="depends on data"):
            dx.nonzero(w)
        dx.concatenate([dx.zeros(140_000), w])
        dx.concatenate([w, np.zeros(140_000)])
        dx.searchsorted(w, dx.zeros(40_000))  # threads share what is looked for
        dx.bincount(w, minlength=1 << 22)
        dx.take(dx.zeros((1, 30_000)), dx.zeros(2_000, dtype=int), axis=0).shape
        with dx.config.set(eager_bytes=0):
            assert dx.stack([w, w])._node().memo is None
        heard.assert_not_called()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda v: v[dx.asarray([4])], IndexError),
        (lambda v: v[:, dx.asarray([-6])], IndexError),
        (lambda v: v[dx.asarray([True, False])], IndexError),
        (lambda v: v[dx.asarray([0.5])], IndexError),
        (lambda v: v.__setitem__(dx.asarray([9]), 1), IndexError),
        (lambda v: v.__setitem__(dx.asarray(M), np.arange(3.0)), ValueError),
        (lambda v: v.__setitem__(dx.asarray([1]), dx.zeros((2, 5))), ValueError),
        (lambda v: dx.take(v, dx.asarray([99])), IndexError),
        (lambda v: dx.concatenate([v, v[0]]), ValueError),
        (lambda v: dx.bincount(v[0]), TypeError),
        (lambda v: dx.bincount(dx.asarray([-1])), ValueError),
    ],
)
def test_what_is_wrong_is_said_by_the_way_through_nodes_and_changes_nothing(wrong: Any, error: type[Exception]) -> None:
    v = dx.asarray(V, copy=True)
    for _ in range(3):
        with pytest.raises(error):
            wrong(v)
    np.testing.assert_array_equal(np.asarray(v), V)


def test_writes_at_indices_stay_in_place() -> None:
    v = dx.asarray(V, copy=True) + 0
    w = dx.asarray(W)
    kept = v[1]
    address = v._base.block.ctypes.data  # type: ignore[union-attr]  # it is here
    with counting() as counts:
        v[w % 4, w] = 100
        v[v > 50] = -1
        v[:, dx.asarray([0])] = v[:, dx.asarray([1])]
    assert counts.evaluations == counts.inline
    assert v._base.block.ctypes.data == address  # type: ignore[union-attr]
    host = V.copy()
    host[W % 4, W] = 100
    host[host > 50] = -1
    host[:, [0]] = host[:, [1]]
    np.testing.assert_array_equal(np.asarray(v), host)
    np.testing.assert_array_equal(np.asarray(kept), host[1])  # a view
    whole = dx.asarray([1, 2, 3], copy=True)
    with pytest.raises(ValueError, match="cannot convert float NaN"):
        whole[dx.asarray([0])] = float("nan")
    with pytest.raises(OverflowError):
        whole[dx.asarray([0])] = 1 << 70
    numbers, a = dx.asarray([4, 3, 0, 1, 2], copy=True) + 0, np.array([4, 3, 0, 1, 2])
    for z, i in ((numbers, dx.asarray([0, 1, 2])), (a, np.array([0, 1, 2]))):
        z[i] = z[::-1][:3]
        z[z] = z
    np.testing.assert_array_equal(np.asarray(numbers), a)
    read_only = dx.broadcast_to(dx.zeros(3), (2, 3))
    with pytest.raises(ValueError, match="read-only"):
        read_only[dx.asarray([0])] = 1


def test_what_waits_for_the_old_elements_gets_them() -> None:
    x = dx.asarray(V, copy=True) + 0
    with dx.config.set(eager_bytes=0):
        waiting = x * 2
    before = x.copy()
    x[dx.asarray([1, 2])] = 7.0
    np.testing.assert_array_equal(np.asarray(waiting), V * 2)
    np.testing.assert_array_equal(np.asarray(before), V)


INDEX = st.one_of(
    st.integers(-5, 4),
    st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), slice(0, 0), None, Ellipsis]),
    st.lists(st.integers(-5, 4), max_size=4).map(lambda each: np.array(each, dtype=int)),
    st.just(np.array([[0, 1], [2, -1]])),
    st.lists(st.booleans(), min_size=4, max_size=5).map(np.array),
    st.just(M),
    st.just(np.array(True)),
)


@given(st.lists(INDEX, min_size=1, max_size=3), st.booleans(), st.sampled_from(["base", "view", "transposed"]))
def test_indices_pick_and_write_what_they_do_in_numpy(items: list[Any], in_arrays: bool, seen: str) -> None:
    see = {"base": lambda x: x, "view": lambda x: x[1:, ::-1], "transposed": lambda x: x.T}[seen]
    host = np.arange(30.0).reshape(5, 6)
    ours = dx.asarray(host, copy=True) + 0
    index = tuple(items)
    given = tuple([dx.asarray(i) if in_arrays and isinstance(i, np.ndarray) else i for i in items])
    try:
        expected = see(host)[index]
    except IndexError:
        with pytest.raises(IndexError):
            see(ours)[given]
        return
    made = see(ours)[given]
    assert made.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(made), expected)
    see(host)[index] = 99.0
    see(ours)[given] = 99.0
    np.testing.assert_array_equal(np.asarray(ours), host)
    see(host)[index] = see(host)[index] * 2
    see(ours)[given] = see(ours)[given] * 2
    np.testing.assert_array_equal(np.asarray(ours), host)


#: Statements that write in place, with x of (n, n), v of n, i of n positions, m of n truths; `xp` is NumPy or ours.
WRITES = """
v[i] = v
v[i] = v[::-1]
x[i] = x
x[i] = v
x[:, i] = x[:, ::-1]
v[m] = v[m][::-1]
x[m] = v
i[i] = i
v[i] += 1
x[i, i] += v
v[i[0]] = 2
v[i[0]] += 1
x[i[0]] = v
x[i[0]] += 1
w = x[i[0]]; w += 1
w = x[i[0], ::-1]; w[m] = 3
w = x[..., i[0]]; w *= 2
v[-1] = v[0]
v[2 % n] += 1
s = v[0]; s += 1; v[0] = s
s = v.sum(); s += v
xp.put(v, i, v[::-1] + 1)
xp.put(v, [n], 1)
xp.put(v, i, 1, mode="wrap")
xp.place(v, m, [5, 6])
xp.putmask(v, m, v[::-1] + 1)
xp.putmask(x, x > 1, v)
xp.copyto(v, v[::-1])
xp.copyto(x, v, where=m)
xp.copyto(v, 1j, casting="unsafe")
xp.fill_diagonal(x, v)
xp.put_along_axis(x, i[None], 9, 0)
xp.add.at(x, (i, i), v)
xp.add.at(x, (i, slice(None)), 1)
xp.negative.at(v, i)
v.fill(v[0])
v.fill(2)
v.sort()
x.T.sort()
x[::2, ::-1][:, i] = v
x.T[i] = v
xp.add(x, x.T, out=x)
xp.multiply(x, 2, out=x.T)
xp.add(v[:-1], v[1:], out=v[:-1])
xp.add(v[1:], v[:-1], out=v[1:])
xp.subtract(x, v, out=x[::-1])
xp.negative(v, out=v[::-1])
xp.sqrt(v, out=v[:0])
x[i > 0] = x[i > 0]
x[i, None] = v[0]
x[..., i] = v
v[np.array(0)] = 3
v[True] = 1
v[[]] = 1
v[[0, -1]] = 4
v[i] = list(range(n))
v[i] = np.float32(3.7)
v[i + n] = 1
v[i] = v[:2]
v[m[:1]] = 1
x[m, m] = 1
x[m, i] = 2
""".strip().splitlines()


@given(
    st.lists(st.sampled_from(WRITES), min_size=1, max_size=6),
    st.sampled_from([1, 3, 8]),
    st.sampled_from(["f8", "i8", "f4", "u1", "?", "c16"]),
    st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore")  # of NumPy's casts
def test_programs_that_write_in_place_leave_what_numpys_leave(
    program: list[str], n: int, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    hosts = {
        "x": (rng.random((n, n)) * n).astype(dtype),
        "v": (rng.random(n) * n).astype(dtype),
        "i": rng.integers(0, n, n),
        "m": rng.random(n) > 0.5,
    }
    names: list[dict[str, Any]] = []
    for xp in (np, dx):
        arrays = {name: np.array(host) if xp is np else dx.asarray(host, copy=True) for name, host in hosts.items()}
        names.append({"np": np, "xp": xp, "n": n, **arrays})
    theirs, ours = names
    for line in program:
        raised = []
        for scope in names:
            before = {name: np.array(scope[name]) for name in hosts}
            try:
                exec(line, scope)
            except Exception as error:
                raised.append(type(error))
                for name, host in before.items():
                    np.testing.assert_array_equal(np.asarray(scope[name].copy()), host, err_msg=line)
        assert len(raised) in (0, 2), (line, raised)
        for name in (*hosts, *({"s", "w"} & theirs.keys())):
            assert ours[name].dtype == theirs[name].dtype, (line, name)
            np.testing.assert_array_equal(np.asarray(ours[name].copy()), theirs[name], err_msg=f"{line}: {name}")


def test_few_elements_of_a_large_array_are_read_and_written_at_the_call() -> None:
    host = np.random.default_rng(0).random((700_000,))
    x, wanted = dx.asarray(host).persist(), host.copy()
    at = np.array([5, 699_999, -7, 5])
    memory = x._base.current.memo.blocks[0]
    with counting() as counts:
        found = [np.asarray(x[at]), np.asarray(x[dx.asarray(at)]), np.asarray(x.reshape(700, 1000)[[1, 2], [3, 4]])]
        x[at] = 2.0
        x[at[:2]] += 1
    assert not counts.tasks
    for one, theirs in zip(found, (host[at], host[at], host.reshape(700, 1000)[[1, 2], [3, 4]]), strict=True):
        np.testing.assert_array_equal(one, theirs)
    wanted[at] = 2.0
    wanted[at[:2]] += 1
    assert np.shares_memory(x._base.found(), memory)  # where nobody else reads it, nothing was copied
    np.testing.assert_array_equal(np.asarray(x), wanted)


def test_what_reads_a_large_array_later_has_the_elements_from_before() -> None:
    host = np.random.default_rng(0).random((700_000,))
    x, at = dx.asarray(host).persist(), np.array([5, 699_999])
    double, part, other = x * 2, x[::3], x.copy()
    x[at] = -1.0
    part[1] = -2.0
    wanted = host.copy()
    wanted[at], wanted[3] = -1.0, -2.0
    np.testing.assert_array_equal(np.asarray(double), host * 2)
    np.testing.assert_array_equal(np.asarray(other), host)
    np.testing.assert_array_equal(np.asarray(x), wanted)
    with pytest.raises(IndexError, match="out of bounds"):
        x[np.array([700_000])] = 3.0
    np.testing.assert_array_equal(np.asarray(x), wanted)


@pytest.mark.parametrize("name", ["nansum", "nanprod"])
def test_sums_of_half_floats_do_not_depend_on_what_is_computed_before(name: str) -> None:
    """They are added up in single precision, as those of `sum` are, wherever the elements lie."""
    host = np.random.default_rng(0).normal(1, 0.05, (2000, 3)).astype("f2")
    x, function = dx.asarray(host), getattr(dx, name)
    with dx.config.set(eager_bytes=0):
        expected = np.asarray(function(dx.asarray(host), axis=0))
    assert np.asarray(function(x, axis=0)).tobytes() == expected.tobytes()
    assert np.asarray(getattr(dx, name.removeprefix("nan"))(x, axis=0)).tobytes() == expected.tobytes()
