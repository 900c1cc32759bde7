"""Pictures of plans: the tiles of a matrix, and how large tiles are. Those of the documentation are its doctests."""

from __future__ import annotations

import pytest

from distarray.errors import ShardingError
from distarray.planner.redistribution import plan
from distarray.planner.redistribution.pictures import draw_sizes, draw_tiles
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistributions import Case, small_cases

MESH = Mesh(("x",), (2,))
ROWS, COLUMNS, WHOLE = (Sharding(MESH, axes) for axes in ((("x",), ()), ((), ("x",)), ((), ())))


def test_tiles_of_a_matrix_are_drawn_side_by_side() -> None:
    assert draw_tiles(plan((4, 6), ROWS, COLUMNS, mode="paper"), 1).splitlines() == [
        "source   alltoall 0->1 n=2",
        "......   ...###",
        "......   ...###",
        "######   ...###",
        "######   ...###",
    ]


def test_every_tile_has_as_many_marks_as_elements() -> None:
    for case in small_cases(60, seed=31, uneven=True):
        if len(case.shape) != 2 or 0 in case.shape:
            continue
        found = plan(*case, mode="fused")
        device = case.src.mesh.size - 1
        start, stop = found.trace[-1].box
        marked = int((stop - start)[device].prod())
        first = int((found.trace[0].box[1] - found.trace[0].box[0])[device].prod())
        drawn = draw_tiles(found, device).splitlines()
        assert len(drawn) == 1 + case.shape[0]
        on_the_way = [int((m.box[1] - m.box[0])[device].prod()) for m in found.trace[1:-1]]
        expected = first + sum(on_the_way) + (marked if found.steps else 0)
        assert sum(line.count("#") for line in drawn[1:]) == expected


def test_only_matrices_are_drawn() -> None:
    with pytest.raises(ShardingError, match="1 dimensions"):
        draw_tiles(plan((4,), Sharding(MESH, (("x",),)), Sharding(MESH, ((),))))


def test_sizes_are_drawn_on_a_logarithmic_scale() -> None:
    assert draw_sizes(plan((4, 4), ROWS, WHOLE, mode="paper")).splitlines() == [
        "16            ###############",
        " 8   ######   ###############",
        "     source   allgather 0 n=2",
    ]
    case = Case((0, 4), ROWS, WHOLE)
    assert "source" in draw_sizes(plan(*case))
