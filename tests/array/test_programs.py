"""Random programs of views, writes, arithmetic and observations give numpy's results, at any window (B-7, B-17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import distarray as dx

#: A statement takes the names of the program in numpy's or distarray's arrays, and what drew the choices.
Names = list[Any]
Statement = Callable[[Any, Names], None]


def index_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    items: list[Any] = []
    for n in shape:
        kind = draw(st.sampled_from("slice slice slice int all none ellipsis".split()))
        if kind == "ellipsis":
            items.append(...)
            break
        if kind == "none":
            items.append(None)
        if kind == "int" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            bound = st.none() | st.integers(-n - 1, n + 1)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -2]))))
        else:
            items.append(slice(None))
    return tuple(items)


@st.composite
def view(draw: st.DrawFn, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    kind = draw(st.sampled_from("index index flip transpose reshape ravel expand broadcast diagonal".split()))
    if kind == "index":
        index = index_of(draw, shape)
        return lambda x: x[index]
    if kind == "flip":
        axes = tuple(draw(st.sets(st.sampled_from(range(len(shape)))))) if shape else ()
        return lambda x: (np if isinstance(x, np.ndarray | np.generic) else dx).flip(x, axis=axes)
    if kind == "transpose":
        order = tuple(draw(st.permutations(range(len(shape)))))
        return lambda x: x.transpose(order)
    if kind == "reshape":
        size = int(np.prod(shape))
        k = draw(st.sampled_from([k for k in range(1, 5) if size % k == 0]))
        return lambda x: x.reshape(k, size // k)
    if kind == "expand":
        return lambda x: x[None]
    if kind == "broadcast":
        return lambda x: (np if isinstance(x, np.ndarray | np.generic) else dx).broadcast_to(x, (2, *shape))
    if kind == "diagonal" and len(shape) >= 2:
        return lambda x: x.diagonal()
    return lambda x: x.ravel()


BINARY = [np.add, np.subtract, np.multiply, np.maximum]


class Pair:
    """A numpy array and the DistArray that has to behave like it."""

    def __init__(self, host: Any, ours: Any) -> None:
        self.host, self.ours = host, ours

    def check(self) -> None:
        found = np.asarray(self.ours)
        assert found.dtype == self.host.dtype
        assert self.ours.shape == found.shape == self.host.shape
        np.testing.assert_array_equal(found, self.host)


def same_outcome(host: Callable[[], Any], ours: Callable[[], Any]) -> tuple[Any, Any] | None:
    """The two results, or None where numpy raises and so do we, the same class of error."""
    try:
        expected = host()
    except (ValueError, TypeError, IndexError) as error:
        with pytest.raises((ValueError, TypeError, IndexError)) as caught:
            ours()
        assert isinstance(caught.value, type(error)) or isinstance(error, type(caught.value))
        return None
    return expected, ours()


def run(draw: st.DrawFn, n_statements: int) -> list[Pair]:
    shape = draw(st.sampled_from([(6,), (4, 3), (2, 3, 4), (5, 1), (0, 3)]))
    dtype = draw(st.sampled_from([np.int64, np.float64]))
    start = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    names = [Pair(start.copy(), dx.asarray(start))]
    note(f"a0 = arange{shape} of {dtype.__name__}")
    for _ in range(n_statements):
        a = draw(st.sampled_from(names))
        kind = draw(st.sampled_from("view view arithmetic write write update observe copy mask take drop".split()))
        note(f"{kind} of name {names.index(a)}: {a.host.shape}")
        if kind == "view":
            look = draw(view(a.host.shape))
            both = same_outcome(lambda: look(a.host), lambda: look(a.ours))
            if both is not None and isinstance(both[0], np.ndarray) and both[0].size <= 200:
                names.append(Pair(*both))
        elif kind == "arithmetic":
            b = draw(st.sampled_from([*names, None]))
            ufunc = draw(st.sampled_from(BINARY))
            x, y = (3, 3) if b is None else (b.host, b.ours)
            ours = getattr(dx, ufunc.__name__)
            both = same_outcome(lambda: ufunc(a.host, x), lambda: ours(a.ours, y))
            if both is not None and both[0].size <= 200 and isinstance(both[0], np.ndarray):
                names.append(Pair(*both))
        elif kind == "write":
            index = index_of(draw, a.host.shape)
            b = draw(st.sampled_from([*names, None]))
            x, y = (draw(st.integers(-5, 5)),) * 2 if b is None else (b.host, b.ours)
            same_outcome(lambda: a.host.__setitem__(index, x), lambda: a.ours.__setitem__(index, y))
        elif kind == "update":
            b = draw(st.sampled_from([*names, None]))
            x, y = (2, 2) if b is None else (b.host, b.ours)
            operator = draw(st.sampled_from(["__iadd__", "__imul__", "__isub__"]))
            both = same_outcome(lambda: getattr(a.host, operator)(x), lambda: getattr(a.ours, operator)(y))
            assert both is None or both[1] is a.ours
        elif kind == "observe":
            a.check()
        elif kind == "copy":
            names.append(Pair(a.host.copy(), a.ours.copy()))
        elif kind == "mask":
            same_outcome(lambda: a.host.__setitem__(a.host > 4, 1), lambda: a.ours.__setitem__(a.ours > 4, 1))
        elif kind == "take" and a.host.ndim and a.host.shape[0]:
            at = draw(st.lists(st.integers(-a.host.shape[0], a.host.shape[0] - 1), min_size=1, max_size=4))
            names.append(Pair(a.host[at], a.ours[at]))
        elif kind == "drop" and len(names) > 1:
            names.remove(a)
    return names


@pytest.mark.parametrize("window", [0, 1, 7, None])
@settings(max_examples=100)
@given(data=st.data())
def test_random_program_equals_numpy(window, data):
    with dx.config.set({} if window is None else {"window": window}), np.errstate(all="ignore"):
        names = data.draw(programs())
        for pair in names:
            pair.check()
        for a, b in zip(names, names[1:] + names[:1]):
            try:
                shared = np.shares_memory(a.host, b.host, max_work=1000)
            except np.exceptions.TooHardError:
                continue
            assert dx.shares_memory(a.ours, b.ours) == shared


@st.composite
def programs(draw: st.DrawFn) -> list[Pair]:
    return run(draw, draw(st.integers(1, 30)))
