"""How partial results are combined: in one order, whoever makes them, and few at a time."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from helpers import peak_nbytes
from hypothesis import given

import distarray as dx
from distarray.kernels.buffers import SMALLEST, Lease
from distarray.kernels.loans import owner
from distarray.kernels.monoids import MONOIDS, Monoid, Pairs


class _Written(Monoid):
    """It writes down what is merged; what may be overwritten is."""

    def merge(self, left: Any, right: Any) -> Any:
        assert isinstance(left, list)
        left[:] = ["(", *left, *right, ")"]
        return left

    def merged(self, left: Any, right: Any) -> Any:
        return ["(", *left, *right, ")"]


def by_levels(parts: list[Any]) -> Any:
    """Return what pairs of neighbours, then pairs of these, and so on, come to."""
    while len(parts) > 1:
        last = parts[-1:] if len(parts) % 2 else []
        parts = [["(", *a, *b, ")"] for a, b in zip(parts[::2], parts[1::2], strict=False)] + last
    return parts[0]


@given(n=st.integers(1, 70), gaps=st.sets(st.integers(0, 69)))
def test_neighbours_are_merged_as_they_come_and_none_is_changed(n: int, gaps: set[int]) -> None:
    monoid = _Written("written")
    parts = [None if i in gaps else [str(i)] for i in range(n)]
    there = [list(p) for p in parts if p is not None]
    pairs = Pairs(monoid)
    for part in parts:
        pairs.add(part)
        assert len(pairs._held) <= max(1, len(there).bit_length())
    assert pairs.result() == (by_levels(there) if there else None)
    assert [p for p in parts if p is not None] == there
    assert monoid.combine(parts) == (by_levels(there) if there else None)


def test_of_the_regions_of_a_tile_few_partial_results_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of a sum that reads 24 blocks held 24 arrays of the size of the result, and then added them."""
    held: list[int] = []
    add = Pairs.add

    def counted(self: Pairs, partial: Any) -> None:
        add(self, partial)
        held.append(len(self._held))

    team = dx.Team((4,), ("x",))
    rng = np.random.default_rng(0)
    a = rng.normal(size=(96, 30, 7)).astype(np.float32)
    with dx.config.set(block_bytes=0):
        rows = dx.Sharding(team.mesh.with_waves(6), (("%1", "x"), (), ()))
        x = (dx.asarray(a, team=team, sharding=rows) + 0).persist()
        monkeypatch.setattr(Pairs, "add", counted)
        with dx.config.set(planner="propagation"):
            y = (x.reshard((None, "x", None)) * 2).sum(axis=0).persist()
        np.testing.assert_allclose(np.asarray(y), (a * 2).sum(axis=0), rtol=1e-5, atol=1e-5)
    assert 1 < max(held) <= 5


def test_every_monoid_combines_in_pairs() -> None:
    for name, monoid in MONOIDS.items():
        assert type(monoid).combine is Monoid.combine, name


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f8", "f2", "i8", "u1", "?", "c8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_along_an_axis_before_long_rows(name: str, dtype: str, axis: int) -> None:
    """The first of equals, and the first nan, whether rows lie apart or not."""
    rng = np.random.default_rng(3)
    block = rng.integers(0, 4, (5, 6, 700)).astype(dtype)
    if dtype[0] in "fc":
        block[rng.random(block.shape) < 0.05] = np.nan
        block[block == 0] *= rng.choice([-1, 1])
    for x in (block, block[:, ::2, 50:], block[::-1, ::-1]):
        value, index = MONOIDS[name].partial(x, (axis,), np.dtype(np.intp))
        wanted = getattr(np, name)(x, axis=axis, keepdims=True)
        np.testing.assert_array_equal(index, wanted)
        np.testing.assert_array_equal(value, np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize("name", ["sum", "max", "any"])
@pytest.mark.parametrize(("shape", "axis"), [((200_000, 3), 1), ((3, 200_000), 0), ((20, 3, 20_000), 1)])
def test_large_results_lie_in_memory_that_is_lent(name: str, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 5, shape).astype("f8")
    dtype = np.dtype("?" if name == "any" else "f8")
    made = MONOIDS[name].partial(x, (axis,), dtype)
    np.testing.assert_array_equal(made, getattr(np, name)(x, axis=axis, keepdims=True), strict=True)
    assert isinstance(owner(made).base, Lease) == (made.nbytes >= SMALLEST)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", ["f8", "f2", "i8", "?", "M8[s]", "c16"])
@pytest.mark.parametrize(("shape", "axis"), [((700, 500), 0), ((30, 70, 200), 0), ((30, 700, 30), 1)])
def test_extremes_of_large_blocks_are_numpys(shape, axis, dtype, name):
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 5, shape)
    x = x > 0 if dtype == "?" else x.astype(dtype)
    if x.dtype.kind in "fcM":
        x[rng.random(shape) < 0.001] = "NaT" if x.dtype.kind == "M" else np.nan
    value, index = MONOIDS[name].partial(x, (axis,), np.dtype(np.intp))
    expected = getattr(np, name)(x, axis=axis, keepdims=True)
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_array_equal(value, np.take_along_axis(x, expected, axis))


@pytest.mark.parametrize("name", ["max", "min"])
def test_zeros_without_axes_are_merged_with_their_signs(name: str) -> None:
    for left, right in ((0.0, -0.0), (-0.0, -0.0), (0.0, 0.0)):
        merged = MONOIDS[name].merge(np.array(left), np.array(right))
        wanted = max(np.signbit([left, right])) if name == "min" else min(np.signbit([left, right]))
        assert (merged, np.signbit(merged)) == (0, wanted)


def test_a_block_is_turned_in_memory_that_is_used_again():
    x = np.random.default_rng(0).standard_normal((375, 1000))
    MONOIDS["argmin"].partial(x, (0,), np.dtype(np.intp))
    _, most = peak_nbytes(lambda: MONOIDS["argmin"].partial(x, (0,), np.dtype(np.intp)))
    assert most < x.nbytes // 20
