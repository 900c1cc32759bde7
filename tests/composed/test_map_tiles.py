"""map_tiles: kernels that know their index ranges."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.testing import counting
from distarray.testing.assertions import assert_close, assert_equal

TEAM = dx.Team((2, 4), ("R", "C"))
M, N, K = 13, 11, 5
A = np.arange(float(M * K)).reshape(M, K)
B = np.arange(float(K * N)).reshape(K, N)[::-1].copy()
C = np.arange(float(M * N)).reshape(M, N) / 7


def gemm(c: Any, a: Any, b: Any, ranges: dict[str, range]) -> None:
    assert c.shape == (len(ranges["i"]), len(ranges["j"]))
    assert a.shape == (len(ranges["i"]), len(ranges["k"]))
    assert b.shape == (len(ranges["k"]), len(ranges["j"]))
    c *= 1.2
    c += 1.5 * (a @ b)


@pytest.mark.parametrize("layouts", list(product("CF", repeat=3)))
@pytest.mark.parametrize("over", [{"R": "i", "C": "j"}, {"C": "i"}, {"R": "j", "C": "j"}, {}])
def test_one_gemm_kernel_serves_all_layouts(layouts: tuple[Any, ...], over: dict[str, str]) -> None:
    """C-9."""
    c = dx.asarray(C, team=TEAM, sharding=("R", "C"), layout=layouts[0])
    a = dx.asarray(A, team=TEAM, sharding=("R", None), layout=layouts[1])
    b = dx.asarray(B, team=TEAM, sharding=(None, "C"), layout=layouts[2])
    with config.set(block_bytes=64):
        out = dx.map_tiles(gemm, c, a, b, names=("ij", "ik", "kj"), over=over)
        assert out is c
        assert_close(c, 1.2 * C + 1.5 * (A @ B), rtol=1e-12)
        assert c.layout == layouts[0]
        assert all(block.values.flags[f"{layouts[0]}_CONTIGUOUS"] for block in c.iter_blocks())


def test_the_ranges_are_the_global_ones_of_the_tiles() -> None:
    """C-9."""

    def position(x: Any, ranges: dict[str, range]) -> None:
        x[...] = 100 * np.asarray(ranges["i"])[:, None] + np.asarray(ranges["j"])

    with config.set(block_bytes=64), counting() as counted:
        x = dx.empty((M, N), dtype=int, team=TEAM, sharding=("R", "C"))
        dx.map_tiles(position, x, names=("ij",), over={"R": "i", "C": "j"})
        assert_equal(x, np.fromfunction(lambda i, j: 100 * i + j, (M, N), dtype=int))
    assert set(counted.members.values()) == set(range(8))
    assert counted.messages == 0


def test_what_was_defined_before_keeps_the_old_values_and_views_see_the_new_ones() -> None:
    def double(x: Any, ranges: dict[str, range]) -> None:
        x *= 2

    x = dx.asarray(C, team=TEAM, sharding=("R", None))
    before, view = x + 1, x[2:4]
    dx.map_tiles(double, x, names=("ij",), over={"R": "i"})
    assert_equal(view, 2 * C[2:4])
    assert_equal(before, C + 1)
    dx.map_tiles(double, view, names=("ij",), over={})
    assert_equal(x[2:4], 4 * C[2:4])
    assert_equal(x[4:], 2 * C[4:])


def test_a_kernel_that_raises_changes_nothing() -> None:
    def fails(x: Any, ranges: dict[str, range]) -> None:
        x[...] = 0
        raise ZeroDivisionError("in the kernel")

    with config.set(block_bytes=64):
        x = (dx.asarray(C, team=TEAM, sharding=("R", None)) + 0.0).persist()
        with pytest.raises(ZeroDivisionError, match="in the kernel"):
            dx.map_tiles(fails, x, names=("ij",), over={"R": "i"})
        assert_equal(x, C)


def test_operands_are_read_only_for_the_kernel() -> None:
    def wrong(x: Any, y: Any, ranges: dict[str, range]) -> None:
        y[...] = 0

    x, y = dx.zeros(4, team=TEAM), dx.ones(4, team=TEAM)
    with pytest.raises(ValueError, match="read-only"):
        dx.map_tiles(wrong, x, y, names=("i", "i"), over={})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"names": ("ij", "ik")}, "do not fit"),
        ({"inplace": 3}, "do not fit"),
        ({"names": ("ij", "i", "kj")}, "does not name"),
        ({"names": ("ij", "ik", "jk")}, "has the extents"),
        ({"over": {"R": "k"}}, "partial sums"),
        ({"over": {"Q": "i"}}, "no mesh axis 'Q'"),
    ],
)
def test_names_that_do_not_fit_are_refused(change: dict[str, Any], match: str) -> None:
    arrays = [dx.asarray(x, team=TEAM) for x in (C, A, B)]
    options: dict[str, Any] = {"names": ("ij", "ik", "kj"), "over": {"R": "i"}} | change
    with pytest.raises(ValueError, match=match):
        dx.map_tiles(gemm, *arrays, **options)


@pytest.mark.cluster
def test_kernels_run_on_the_workers_that_own_the_tiles(cluster4: Any) -> None:
    c, a, b = dx.asarray(C, sharding=("x", None)), dx.asarray(A), dx.asarray(B)
    dx.map_tiles(gemm, c, a, b, names=("ij", "ik", "kj"), over={"x": "i"})
    assert_close(c, 1.2 * C + 1.5 * (A @ B), rtol=1e-12)
