"""Cuts that the user asked for, one after another and in what is written: each holds, and writes follow their base."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.assertions import assert_equal

TEAM = dx.Team((2, 3), ("R", "C"))


@pytest.mark.parametrize("shape", [(6, 6), (7, 7), (5, 8), (9, 4)], ids=str)
@pytest.mark.parametrize("sharding", [("R", "C"), (("C", "R"), None), (None, "C")], ids=str)
@pytest.mark.parametrize("rows", [slice(None), slice(2, None), slice(None, None, -1)], ids=str)
def test_a_diagonal_is_written_across_tiles(shape: tuple[int, ...], sharding: Any, rows: slice) -> None:
    """A tile of the diagonal must not reach over two tiles of the base, whichever of its axes is cut."""
    a = np.zeros(shape)
    x = dx.zeros(shape, team=TEAM, sharding=sharding)
    values = np.arange(1.0, 1 + min(a[rows].shape))
    np.fill_diagonal(a[rows], values)
    dx.fill_diagonal(x[rows], dx.asarray(values, team=TEAM))
    assert_equal(x, a)


def test_each_of_several_cuts_in_one_chain_holds() -> None:
    a = np.arange(64.0).reshape(8, 8)
    by_rows = (dx.asarray(a, team=TEAM) + 1).reshard(("R", None))
    by_columns = (by_rows * 2).reshard((None, "C"))
    assert_equal(by_columns, (a + 1) * 2)
    assert by_columns.sharding.axes == ((), ("C",))
    assert by_rows.persist().sharding.axes == (("R",), ())


def test_a_write_follows_its_base_whatever_the_cut_of_its_value() -> None:
    a = np.arange(64.0).reshape(8, 8)
    x = dx.asarray(a, team=TEAM).reshard(("R", None))
    x[2:6] = (x[1:5] * 2).reshard((None, "C"))
    a[2:6] = a[1:5] * 2
    assert_equal(x, a)
    assert x.sharding.axes == (("R",), ())
    both = dx.concat([x, (x + 1).reshard((None, "C"))])
    assert_equal(both, np.concatenate([a, a + 1]))


@pytest.mark.parametrize("shape", [(), (1,), (4, 3)], ids=str)
@pytest.mark.parametrize("eager", [0, 1 << 17], ids=["deferred", "eager"])
def test_a_copy_lies_where_the_array_lies(shape: tuple[int, ...], eager: int) -> None:
    mesh = dx.Mesh(("d",), (1,), owners=(3,))
    with dx.config.set(eager_bytes=eager):
        x = dx.asarray(np.ones(shape), team=TEAM, sharding=dx.Sharding(mesh, ((),) * len(shape)))
        assert x.copy().sharding == x.sharding == np.copy(x).sharding
        copy = x.copy()
        copy[...] = 2
        assert_equal(x, np.ones(shape))
        assert_equal(copy, np.full(shape, 2.0))


@pytest.mark.parametrize("how", ["[8]+{T}", Sharding(Mesh(("T",), (2,)), ((),), (("T", "sum"),))], ids=["text", "type"])
def test_no_array_is_partial_sums(how: Any) -> None:
    """Such a type is one of intermediate results: who asks for an array of it is told so, before anything runs."""
    team = dx.Team((2,), ("T",))
    with pytest.raises(dx.NotSupportedError, match="partial sums"):
        dx.zeros(8, team=team, sharding=how)
    with pytest.raises(dx.NotSupportedError, match="partial sums"):
        dx.ones(8, team=team).reshard(how)
