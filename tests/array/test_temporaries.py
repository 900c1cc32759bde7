"""Temporary results: their memory is taken over where nobody else can have them, and nowhere else."""

from __future__ import annotations

import functools
import operator
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.array import at_call
from distarray.array.temporaries import SMALLEST, operand_flow

#: Arrays of so many elements are large enough.
N = 40_000
assert N * 8 > SMALLEST


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the addresses of memory that results were written over."""
    addresses: list[int] = []

    def partial(call: Any, *, out: Any) -> Any:
        addresses.append(out.ctypes.data)
        return functools.partial(call, out=out)

    monkeypatch.setattr(at_call, "partial", partial)
    return addresses


def _names(xp: Any) -> dict[str, Any]:
    host = np.random.default_rng(1).random((4, N))
    made = {name: xp.asarray(row) for name, row in zip("abcd", host, strict=True)}
    library = {"functools": functools, "operator": operator, "np": np, "one": lambda x: x, "kept": []}
    return {**made, **library, "xp": xp, "keep": lambda x: (_kept.append(x), x)[1]}


_kept: list[Any] = []


def _same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, value in theirs.items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            np.testing.assert_array_equal(np.asarray(ours[name]), value, err_msg=name)


def _run(code: str) -> None:
    ours, theirs = _names(dx), _names(np)
    _kept.clear()
    exec(code, ours)
    kept = [np.asarray(x).copy() for x in _kept]
    _kept.clear()
    exec(code, theirs)
    _same(ours, theirs)
    for x, y in zip(kept, _kept, strict=True):
        np.testing.assert_array_equal(x, y)
    _kept.clear()


@pytest.mark.parametrize(
    ("code", "n"),
    [
        ("r = a + b + c + d", 2),
        ("r = 0.25 * (a + b)", 1),
        ("r = a - b * c", 1),
        ("r = (a + b) * (c - d)", 1),
        ("r = xp.sqrt(a * a + b * b) - 0.1 * c", 2),
        ("r = (a * 2 + 1)[::2] + 1", 1),
        ("r = a[::1] + b[::1] + c", 1),
        ("def f(a, b):\n    return a + b - a\nr = f(a, b)", 1),
        ("r = [x + 1 - y for x, y in [(a, b), (c, d)]][1]", 2),
        ("for k in range(3):\n    a = a * 0.5 + b - k", 6),
        ("r = (lambda x: x + x - 1)(a)", 1),
    ],
)
def test_memory_of_a_temporary_result_is_taken_over(code: str, n: int, taken: list[int]) -> None:
    """Numpy's own rule, and where it may be either operand."""
    _run(code)
    assert len(taken) == n


@pytest.mark.parametrize(
    "code",
    [
        "r = a + b",
        "t = a + b\nr = t + c",
        "r = (t := a + b) + c",
        "r = (t := a + b) + t",
        "r = keep(a + b) + c",
        "r = one(a + b) + c",  # somebody else's function may keep it
        "r = {}.setdefault(1, a + b) + c",
        "r = operator.add(a + b, c)",
        "r = functools.reduce(operator.add, [a, b, c])",
        "r = sum([a, b, c], 0)",
        "r = (a + b if len(a) else b + c) + d",
        "r = (a + b)[1:] + c[1:]",
        "r = (a + b).T + c",
        "r = (a > b) + 1",
        "r = (a + b) > c",
        "t = [a + b]\nr = t[0] + c\ns = t[0]",
        "t = [a + b]\nr = t.pop() + c",
        "def g():\n    yield a + b\n    yield c\nr = next(g()) + d",
        "r = a[:2000] + b[:2000] + c[:2000]",  # small
        "r = xp.add(a + b, c)",
        "def f(x):\n    return x + 1\nr = f(a + b) + f(c)\ns = f(r)",
        "r = a.reshape(2, -1) + (b + c).reshape(2, -1)",
    ],
)
def test_memory_that_somebody_may_have_is_left_alone(code: str, taken: list[int]) -> None:
    _run(code)
    assert not taken


def test_a_result_that_a_cache_kept_is_left_alone(taken: list[int]) -> None:
    """The call that pushed it is the one that made it, and what the cache has of it is counted."""
    x = dx.asarray(np.arange(float(N)))
    root = functools.lru_cache(functools.partial(dx.sqrt, x))  # in C: no frame between the user's and ours
    r = root() + 1
    s = root() + 1
    np.testing.assert_array_equal(np.asarray(r), np.asarray(s))
    np.testing.assert_array_equal(np.asarray(root()), np.sqrt(np.arange(float(N))))
    assert not taken


def test_elements_of_object_arrays_are_left_alone(taken: list[int]) -> None:
    """Numpy's own operators run here in C, on arrays that only an object array has."""
    host = np.arange(float(N))
    a, b = dx.asarray(host), dx.asarray(host + 1)
    x = np.empty(2, object)
    x[0], x[1] = a * 1, b * 1
    y = x + 1
    total = x.sum()
    for seen, known in ((x[0], host), (x[1], host + 1), (y[0], host + 1), (y[1], host + 2), (total, host + host + 1)):
        np.testing.assert_array_equal(np.asarray(seen), known)
    assert not taken


def test_a_result_whose_operator_fails_is_seen_by_nobody(taken: list[int]) -> None:
    x = dx.asarray(np.full(N, 1e308))
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        (x * 1) + 1e308 * x
    np.testing.assert_array_equal(np.asarray(x), np.full(N, 1e308))


_EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "c", "d", "c[::-1]", "t", "u"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), st.sampled_from("23")).map(lambda e: f"({e[0]} {e[1]} {e[2]})"),
        inner.map(lambda e: f"(0.5 * {e})"),
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda e: f"({e[0]} {e[1]} {e[2]})"),
        st.tuples(st.sampled_from(["xp.abs", "xp.negative", "one", "keep"]), inner).map(lambda e: f"{e[0]}({e[1]})"),
        st.tuples(st.sampled_from("tu"), inner).map(lambda e: f"({e[0]} := {e[1]})"),
        st.tuples(inner, inner, inner).map(lambda e: f"({e[0]} if xp.sum({e[1]}) > 0 else {e[2]})"),
        inner.map(lambda e: f"[{e}, {e}][0]"),
        inner.map(lambda e: f"(-{e})"),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abrtu"), _EXPRESSIONS), min_size=1, max_size=5), st.booleans())
def test_every_name_has_what_it_has_in_numpy(lines: list[tuple[str, str]], in_function: bool) -> None:
    """Programs of expressions with names inside, conditions, lists, and functions that keep what they are given."""
    body = ["t, u = c * 1, d * 1", *[f"{name} = {expression}" for name, expression in lines]]
    if in_function:
        body = [
            "def f(a, b, c, d):",
            *[f"    {line}" for line in body],
            "    return locals()",
            "globals().update(f(a, b, c, d))",
        ]
    with np.errstate(all="ignore"):
        _run("\n".join(body))


def test_operands_of_operators_are_read_from_the_code() -> None:
    def program(a: Any, b: Any) -> Any:
        return abs(a) + a * b

    flow = operand_flow(program.__code__)
    code = program.__code__.co_code
    sums = [pushed for pushed in flow.values() if all(pushed)]
    assert len({left.start for left, _ in sums}) == 1 and len({right.start for _, right in sums}) == 1
    assert all(0 < left.start < right.start < len(code) for left, right in sums)


def test_an_operand_may_come_straight_from_a_pickle() -> None:
    x = dx.asarray(np.arange(6.0), team=dx.Team((2,), ("T",)), sharding=("T",))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)) + x, 2 * np.arange(6.0))
    np.testing.assert_array_equal(2 - pickle.loads(pickle.dumps(x)), 2 - np.arange(6.0))
