"""Operations on small arrays of one process: computed when they are made, as NumPy computes them."""

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distarray as dx
from distarray.kernels import listening
from distarray.runtime import small
from distarray.testing import counting

A = np.arange(24.0).reshape(4, 6) - 7


def is_computed(x: dx.DistArray) -> bool:
    return x._base.current.memo is not None


#: Operations on an array of (4, 6), each of one node or of several that nobody has a handle of.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda xp, x: x + 1,
    "views": lambda xp, x: x[:-1, 1:] * x[1:, :-1],
    "of a transpose": lambda xp, x: x.T + 1,
    "number": lambda xp, x: x[2, 3] * 2,
    "compare": lambda xp, x: x > 0,
    "inexact": lambda xp, x: xp.exp(x[::2, ::-1] / 10),
    "sum": lambda xp, x: x.sum(),
    "sum of a view": lambda xp, x: x[1:, ::2].sum(axis=0),
    "mean": lambda xp, x: x.mean(axis=1),
    "variance": lambda xp, x: x.var(axis=0),
    "argmax": lambda xp, x: x.argmax(axis=1),
    "matmul": lambda xp, x: x @ x.T,
    "vector": lambda xp, x: x @ x[0],
    "vecdot": lambda xp, x: xp.vecdot(x[:, ::-1] / 3, x[:, ::2].repeat(2, axis=1)),
    "vecdot along rows": lambda xp, x: xp.vecdot(x / 3, x[::-1], axis=0),
    "vecmat": lambda xp, x: xp.vecmat(x[::-1, 2] / 7, x / 3),
    "sort": lambda xp, x: xp.sort(-x, axis=0),
    "cumsum": lambda xp, x: x.cumsum(axis=1),
    "take": lambda xp, x: x[xp.asarray([2, 0, 2])],
    "where": lambda xp, x: xp.where(x > 3, x, 0.0),
    "astype": lambda xp, x: x.astype("f4"),
    "constant": lambda xp, x: x + xp.ones((4, 6)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_small_arrays_is_computed_when_it_is_made(name: str) -> None:
    x = dx.asarray(A) + 0
    y = OPERATIONS[name](dx, x)
    assert is_computed(y)
    with counting() as c:
        found = np.asarray(y)
    assert not c.evaluations
    expected = OPERATIONS[name](np, A)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_handler_that_sets_the_state_leaves_it_nowhere_else() -> None:
    """A signal may come while numpy listens."""
    x = dx.asarray(A)
    listener = listening.listener()
    with np.errstate(all="warn"):
        listener.run(lambda: np.seterr(all="raise"))
        listener.heard()
        assert listening.listener() is listener
        listener.heard()
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            1 / (x - x)


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_gives_the_bits_of_what_waits(name: str) -> None:
    x = dx.asarray(A) + 0
    with dx.config.set(eager_bytes=0):
        waiting = OPERATIONS[name](dx, x)
        assert not is_computed(waiting)
        late = np.asarray(waiting)
    assert np.asarray(OPERATIONS[name](dx, x)).tobytes() == late.tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: dx.reshape(x, (6, 4), copy=True),
        lambda x: x.copy(),
        lambda x: dx.astype(x, "f8"),
        lambda x: x[0, 0],
        lambda x: dx.clip(x, -100, 100),
        lambda x: dx.roll(x, 0),
        lambda x: dx.concat([x]),
        lambda x: dx.round(x, 3),
        lambda x: dx.sort(x, axis=1),
        lambda x: dx.einsum("ij->ij", x, join="identity"),
        lambda x: x[None].sum(axis=0),
    ],
)
def test_what_is_computed_is_in_memory_of_its_own(make: Callable[[dx.DistArray], dx.DistArray]) -> None:
    x = dx.asarray(A) + 0
    y = make(x)
    before = np.asarray(y).copy()
    x[...] = 99
    x += 1
    np.testing.assert_array_equal(np.asarray(y), before)
    y[...] = -5
    np.testing.assert_array_equal(np.asarray(x), np.full_like(A, 100))


def test_what_is_larger_or_cut_or_the_users_waits() -> None:
    limit = dx.config.get("eager-bytes")
    assert is_computed(dx.asarray(np.zeros(limit // 8)) + 1)
    assert not is_computed(dx.asarray(np.zeros(limit // 8 + 1)) + 1)
    assert is_computed(dx.asarray(np.ones(limit // 8 + 1)).sum())
    long = np.ones(3 * small.BRIEF_NBYTES // 8)
    assert not is_computed(dx.asarray(long).sum())  # a larger one is read in slices by all threads
    with dx.config.set(eager_bytes=1000):
        assert is_computed(dx.asarray(np.ones(limit // 8)).sum())  # what is read by a plain call in any case
    team = dx.Team((4,), ("R",))
    assert not is_computed(dx.asarray(A, team=team, sharding=("R", None)) + 1)
    assert not is_computed(dx.zeros((4, 6), team=team, sharding=("R", None)) + 1)
    calls: list[int] = []
    with dx.config.set(errors="deferred"):
        assert not is_computed(dx.map_blocks(lambda b: calls.append(1) or b, dx.asarray(A), dtype="f8"))
    assert not calls
    with dx.config.set(block_bytes=0):
        assert not is_computed(dx.asarray(A) + 1)
    with dx.config.set(eager_bytes=0):
        waiting = dx.asarray(A) + 1
    assert not is_computed(waiting)
    assert not is_computed(waiting + 1)  # as what it needs
    np.testing.assert_array_equal(np.asarray(waiting + 1), A + 2)
    assert is_computed(waiting + 1)


def test_writes_are_seen_by_all_aliases_and_by_nothing_made_before() -> None:
    a, x = A.copy(), dx.asarray(A) + 0
    made = x * 2
    view, other = x[1:, ::2], x.T
    x[2] = 5
    view += 1
    other[0, 0] = -1
    x[:, 1:] -= x[:, :-1]
    x[dx.asarray([0, 3])] = 8
    a[2] = 5
    a[1:, ::2] += 1
    a.T[0, 0] = -1
    a[:, 1:] -= a[:, :-1].copy()
    a[[0, 3]] = 8
    assert is_computed(x)
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(view), a[1:, ::2])
    np.testing.assert_array_equal(np.asarray(made), A * 2)


# ------------------------------------------------------------------------------------- the floating-point state


def test_warnings_come_at_the_call_with_its_line() -> None:
    x = dx.asarray(A)
    for make in (lambda: 1 / (x - x), lambda: (x[1:] / (x[1:] - x[1:])).sum(), lambda: dx.log(x)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make()
        assert caught
        assert {w.filename for w in caught} == {__file__}
        assert {w.lineno for w in caught} == {make.__code__.co_firstlineno}


def test_numpys_state_at_the_call_counts() -> None:
    x, tiny = dx.asarray(A), dx.asarray(np.full(3, 1e-300))
    with np.errstate(all="ignore"):
        assert np.isnan(float((x / 0).sum()))
    with np.errstate(divide="raise"):
        with pytest.raises(FloatingPointError, match="divide by zero encountered in divide") as caught:
            1 / (x - x)
        assert any(__file__ in note for note in caught.value.__notes__)
        with pytest.raises(FloatingPointError, match="encountered in arctanh"):
            dx.atanh(x - x + 1)
    with pytest.warns(RuntimeWarning, match="invalid value encountered in arccos"):
        dx.acos(x)
    with dx.config.set(eager_bytes=0), pytest.warns(RuntimeWarning, match="invalid value encountered in arccos"):
        np.asarray(dx.acos(x))
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="encountered in cast"):
        (x * np.nan).astype("i4")
    assert float((tiny * tiny).sum()) == 0  # numpy ignores it by default
    with np.errstate(under="raise"), pytest.raises(FloatingPointError, match="underflow"):
        tiny * tiny
    with np.errstate(under="warn"), pytest.warns(RuntimeWarning, match="underflow encountered in multiply"):
        tiny * tiny
    assert np.geterrcall() is None
    assert np.geterr()["under"] == "ignore"


def test_a_write_that_warns_is_done_where_warnings_are_errors() -> None:
    """As in NumPy."""
    a, x = A.copy(), dx.asarray(A) + 0
    for each in (a, x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="divide by zero"):
                each /= 0
    np.testing.assert_array_equal(np.asarray(x), a)


def test_what_raises_changes_nothing() -> None:
    x = dx.asarray(np.array([2, 3]))
    with pytest.raises(ValueError, match="Integers to negative integer powers"):
        x ** dx.asarray(np.array([1, -1]))
    with pytest.raises(IndexError, match="out of bounds"):
        x[dx.asarray(np.array([5]))]
    with pytest.raises(IndexError, match="out of bounds"):
        x[dx.asarray(np.array([5]))] = 1
    assert x.tolist() == [2, 3]


# --------------------------------------------------------------------------------------------------- what is left


def test_nothing_is_listed_and_nothing_is_kept_alive() -> None:
    from distarray.array import window

    x = dx.asarray(A) + 0
    np.asarray(x)
    n = len(window._local.window.nodes)
    for _ in range(100):
        x = dx.sqrt(x * x + 1)
        x[1:] -= 0.5
    assert len(window._local.window.nodes) == n
    gc.collect()
    node = x._base.current
    assert not node.operands


def test_threads_that_share_views_and_write_see_whole_versions() -> None:
    """A reader sees each write whole, whoever computes the view that several have."""
    x = dx.asarray(np.zeros((8, 8))) + 0
    views = [x[1:], x.T[2:5], x[::2, ::2]]
    stop, errors = threading.Event(), []

    def reader() -> None:
        try:
            while not stop.is_set():
                for view in views:
                    found = np.asarray(view * 1.0)
                    assert (found == found.flat[0]).all()
                    assert np.asarray(view).min() <= float(view.max())
        except BaseException as error:  # told by the test
            errors.append(error)

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(1500):
        x += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    np.testing.assert_array_equal(np.asarray(x), np.full((8, 8), 1500.0))


@st.composite
def indexes(draw: st.DrawFn) -> tuple[Any, ...]:
    sizes = st.sampled_from([None, -7, -5, -3, -1, 0, 1, 2, 4, 5, 9])
    steps = st.sampled_from([None, -2, -1, 1, 2, 3])
    item = st.one_of(st.builds(slice, sizes, sizes, steps), st.integers(-3, 2))
    return tuple(draw(st.lists(item, max_size=2)))


@given(st.lists(st.tuples(indexes(), st.sampled_from(["read", "write", "update"])), max_size=12))
def test_indices_that_were_met_before_mean_the_same(steps: list[tuple[tuple[Any, ...], str]]) -> None:
    a = np.arange(15.0).reshape(3, 5)
    x = dx.asarray(a) + 0
    for index, what in steps + steps:
        if what == "write":
            a[index] = 3
            x[index] = 3
        elif what == "update":
            a[index] += 2
            x[index] += 2
        np.testing.assert_array_equal(np.asarray(x[index] * 2), a[index] * 2)
        np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.cluster
def test_on_a_cluster_what_lies_at_workers_waits(cluster4: Any) -> None:
    y = (dx.zeros((64, 64), team=dx.Team((4,), ("R",)), sharding=("R", None)) + 1).persist()
    assert not is_computed(y + 1)
    np.testing.assert_array_equal(np.asarray(y + 1), np.full((64, 64), 2.0))


def test_iteration_computes_a_small_array_once() -> None:
    with counting() as c:
        assert [int(i) for i in dx.arange(100)] == list(range(100))
    assert c.evaluations <= 1
    with counting() as c:
        next(iter(dx.ones((3000, 1000))))
    assert c.evaluations == 0, "a large one stays an expression"
