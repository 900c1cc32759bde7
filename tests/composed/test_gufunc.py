"""apply_gufunc: core dimensions whole, loops cut; against dask.array and numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_close, assert_equal

A = np.random.default_rng(0).random((5, 7, 3))
B = np.random.default_rng(1).random((7, 3))


@pytest.fixture(params=[None, 3], ids=["small", "three tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield


def moments(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return block.mean(-1), block.std(-1)


def test_several_results_come_in_a_tuple(tiles: None) -> None:
    mean, std = dx.apply_gufunc(moments, "(i)->(),()", dx.asarray(A), output_dtypes=("f8", "f8"))
    assert_close(mean, A.mean(-1))
    assert_close(std, A.std(-1))


def test_a_function_with_several_results_runs_once_per_tile() -> None:
    x = dx.asarray(B, team=dx.Team((4,), ("T",)), sharding=("T", None)).persist()
    seen: list[Any] = []

    def counted(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append(block.shape)
        return moments(block)

    mean, std = dx.apply_gufunc(counted, "(i)->(),()", x, output_dtypes=("f8", "f8"))
    assert_close(mean + std, B.mean(-1) + B.std(-1))
    assert sorted(seen) == [(1, 3), (2, 3), (2, 3), (2, 3)]


def test_loops_broadcast(tiles: None) -> None:
    found = dx.apply_gufunc(
        lambda x, y: np.einsum("...i,...j->...ij", x, y), "(i),(j)->(i,j)", dx.asarray(A), dx.asarray(B[:1]),
        output_dtypes="f8",
    )  # fmt: skip
    assert_close(found, np.einsum("abi,cj->abij", A, B[:1]))


def test_vectorize_calls_the_function_for_each_element_of_the_loops(tiles: None) -> None:
    found = dx.apply_gufunc(
        np.outer, "(i),(j)->(i,j)", dx.asarray(B), dx.asarray(B[:, :2]), vectorize=True, output_dtypes=float
    )
    assert_close(found, np.einsum("ai,aj->aij", B, B[:, :2]))
    found = dx.apply_gufunc(lambda v: 1.0 if v > 0.5 else 0.0, "()->()", dx.asarray(B), vectorize=True, infer=True)
    assert_equal(found, (B > 0.5) * 1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"axis": 0},
        {"axis": 1, "keepdims": True},
        {"axes": [(1,)]},
        {"axes": [0, ()], "keepdims": False},
        {"axis": -2, "keepdims": True},
    ],
)
def test_core_dimensions_may_stand_anywhere(tiles: None, options: dict[str, Any]) -> None:
    da = pytest.importorskip("dask.array")

    def mean(block: np.ndarray) -> np.ndarray:
        return block.mean(-1)

    expected = da.apply_gufunc(mean, "(i)->()", da.from_array(A, chunks=-1), output_dtypes=float, **options)
    assert_close(dx.apply_gufunc(mean, "(i)->()", dx.asarray(A), output_dtypes=float, **options), expected.compute())


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axis_is_that_of_all_that_have_the_core_dimension(tiles: None, axis: int) -> None:
    def sums(block: np.ndarray) -> np.ndarray:
        return block.cumsum(-1)

    def scaled(factor: np.ndarray, block: np.ndarray) -> np.ndarray:
        return factor[..., None] * block

    def scaled_sum(factor: np.ndarray, block: np.ndarray) -> np.ndarray:
        return factor * block.sum(-1)

    x, two = dx.asarray(B), dx.asarray(2.0)
    assert_close(dx.apply_gufunc(sums, "(i)->(i)", x, axis=axis, output_dtypes=float), B.cumsum(axis))
    assert_equal(dx.apply_gufunc(scaled, "(),(i)->(i)", two, x, axis=axis, output_dtypes=float), 2 * B)
    found = dx.apply_gufunc(scaled_sum, "(),(i)->()", two, x, axis=axis, keepdims=True, output_dtypes=float)
    assert_close(found, 2 * B.sum(axis, keepdims=True))


def test_the_dtype_of_a_vectorized_function_is_that_of_a_call_on_core_dimensions_alone() -> None:
    def outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.einsum("i,j->ij", x, y)

    found = dx.apply_gufunc(outer, "(i), (j) -> (i, j)", dx.asarray(B), dx.asarray(B), vectorize=True, infer=True)
    assert_equal(found, B[:, :, None] * B[:, None])


def test_axes_of_results_and_sizes_of_new_dimensions(tiles: None) -> None:
    da = pytest.importorskip("dask.array")

    def twice(block: np.ndarray) -> np.ndarray:
        return np.concatenate([block, -block], -1)

    options: dict[str, Any] = {"axes": [(0,), (1,)], "output_dtypes": float, "output_sizes": {"k": 10}}
    expected = da.apply_gufunc(twice, "(i)->(k)", da.from_array(A, chunks=-1), **options).compute()
    assert_equal(dx.apply_gufunc(twice, "(i)->(k)", dx.asarray(A), **options), expected)


def test_a_core_dimension_may_stand_twice_in_an_operand(tiles: None) -> None:
    a = np.random.default_rng(3).random((5, 3, 3))
    assert_close(dx.apply_gufunc(np.linalg.det, "(i,i)->()", dx.asarray(a), output_dtypes=float), np.linalg.det(a))


def test_host_arrays_are_operands_too() -> None:
    found = dx.apply_gufunc(np.add, "(),()->()", dx.asarray(B), B, output_dtypes=float)
    assert_equal(found, B + B)


def test_gufunc_and_its_decorator() -> None:
    @dx.as_gufunc("(i),(i)->()", output_dtypes=float)
    def inner(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The inner product."""
        return (x * y).sum(-1)

    assert inner.__doc__ == "The inner product."
    assert_close(inner(dx.asarray(B), dx.asarray(B)), (B * B).sum(-1))
    assert_close(inner(dx.asarray(B), dx.asarray(B), axis=0), (B * B).sum(0))


@pytest.mark.parametrize(
    ("signature", "options", "error"),
    [
        ("(i)->", {}, ValueError),
        ("i->j", {}, ValueError),
        (5, {}, TypeError),
        ("(i),(j)->()", {}, ValueError),
        ("(i)->(k)", {}, ValueError),
        ("(i)->()", {"axis": 0, "axes": [(0,)]}, ValueError),
        ("(i,i)->()", {"axis": 0}, ValueError),
        ("(i)->(k)", {"axis": 0, "output_sizes": {"k": 2}}, ValueError),
        ("(i)->()", {"axis": 3}, np.exceptions.AxisError),
        ("(i)->(i)", {"keepdims": True}, ValueError),
        ("(i,j,k)->()", {}, ValueError),
        ("(i,i)->()", {}, ValueError),
        ("(i)->(),()", {}, ValueError),
    ],
)
def test_what_does_not_fit_raises_at_the_call(signature: Any, options: dict[str, Any], error: type[Exception]) -> None:
    def never(block: Any) -> Any:
        raise AssertionError("called at definition")

    with pytest.raises(error):
        dx.apply_gufunc(never, signature, dx.asarray(B), output_dtypes=float, **options)


def test_an_axis_of_several_core_dimensions_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="core dimensions here are i, k; say axes="):
        dx.apply_gufunc(np.sort, "(i)->(k)", dx.asarray(B), output_dtypes=float, axis=0, output_sizes={"k": 2})


def test_core_dimensions_are_brought_together_unless_that_is_forbidden() -> None:
    x = dx.asarray(A[0], team=dx.Team((3,), ("T",)), sharding=(None, "T")).persist()
    with config.set(block_bytes=8), counting() as c:
        found = dx.apply_gufunc(lambda b: b.sum(-1), "(i)->()", x, output_dtypes=float)
    assert_close(found, A[0].sum(-1))
    assert c.messages > 0
    with pytest.raises(ValueError, match="multiple chunks"):
        dx.apply_gufunc(np.sum, "(i)->()", x, output_dtypes=float, allow_rechunk=False)


def test_a_function_that_returns_too_few_results_raises() -> None:
    with pytest.raises(ValueError, match="tuple of 2"):
        dx.apply_gufunc(lambda b: b.sum(-1), "(i)->(),()", dx.asarray(B), output_dtypes=(float, float))
