"""Drawings show every tile once, with the members that hold it, and stay small for any number of tiles."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.diagnostics.draw import MAX_RECTANGLES, member_colour, sharding_svg, visualize_sharding
from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.strategies import meshes, shapes, shardings

MESH = Mesh(("R", "C"), (2, 4))
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def types(draw, max_dims=4):
    shape = draw(shapes(max_dims=max_dims))
    return shape, draw(shardings(draw(meshes()), shape))


def rectangles(svg):
    """(tooltip, attributes) of all tiles that a drawing shows, from the back to the front."""
    root = ElementTree.fromstring(svg)
    return [(g.find(f"{SVG}title").text, g.find(f"{SVG}rect").attrib) for g in root.iter(f"{SVG}g")]


# -- text


def test_a_grid_has_a_cell_for_each_tile_with_its_member():
    text = visualize_sharding((8, 10), Sharding(MESH, (("R",), ("C",))))
    assert text.splitlines() == [
        "[4{R}8, 3{C}10] on Mesh(R=2, C=4)",
        "     0:2  2:5  5:7  7:10",
        "    +----+----+----+----+",
        "0:4 | 0  | 1  | 2  | 3  |",
        "    +----+----+----+----+",
        "4:8 | 4  | 5  | 6  | 7  |",
        "    +----+----+----+----+",
    ]


def test_replicas_and_addends_are_told_apart():
    replicas = visualize_sharding((8,), Sharding(Mesh(("x", "y"), (2, 2)), (("x",),)))
    addends = visualize_sharding((8,), Sharding(Mesh(("x", "y"), (2, 2)), (("x",),), (("y", "sum"),)))
    assert "|0,1|2,3|" in replicas
    assert "|0+1|2+3|" in addends


def test_many_holders_are_shortened():
    text = visualize_sharding((8,), Sharding(Mesh(("x",), (100,)), ((),)))
    assert "|0,1,..,99|" in text


def test_more_than_two_cut_axes_are_unrolled_over_the_others():
    mesh = Mesh(("x", "y", "z"), (2, 2, 2))
    text = visualize_sharding((4, 3, 4, 5), Sharding(mesh, (("x",), (), ("y",), ("z",))))
    assert "[:, :, :, 0:2]" in text
    assert "[:, :, :, 2:5]" in text
    assert re.findall(r"\| +(\d) +\| +(\d) +\|", text) == [("0", "2"), ("4", "6"), ("1", "3"), ("5", "7")]


def test_wave_axes_show_that_neighbours_lie_on_one_member():
    mesh = Mesh(("x", "%1"), (2, 2))
    blocked, cyclic = (visualize_sharding((8,), Sharding(mesh, (names,))) for names in (("%1", "x"), ("x", "%1")))
    assert "| 0 | 0 | 1 | 1 |" in blocked
    assert "| 0 | 1 | 0 | 1 |" in cyclic


def test_long_rows_and_many_grids_are_cut_short():
    mesh = Mesh(("x", "y", "z"), (100, 100, 100))
    text = visualize_sharding((1000, 1000, 1000), Sharding(mesh, (("x",), ("y",), ("z",))))
    assert "..." in text
    assert text.endswith("... and 92 more")
    assert len(text) < 30_000


def test_an_array_without_axes_is_one_tile():
    assert "|0,1|" in visualize_sharding((), Sharding(Mesh(("x",), (2,)), ()))


@given(types())
def test_any_type_can_be_drawn_as_text_with_lines_of_equal_width(case):
    shape, sharding = case
    lines = visualize_sharding(shape, sharding).splitlines()
    rows = [line for line in lines if line.endswith("|")]
    rules = [line for line in lines if line.endswith("+")]
    assert len(rows) >= 1
    assert len({len(line) for line in rows[:1] + rules[:1]}) == 1
    if sharding.n_tiles <= 10 and sharding.n_addends == 1 and sharding.n_replicas == 1:
        found = sorted(int(n) for line in rows for n in re.findall(r"\d+", line[line.index("|") :]))
        assert found == sorted(sharding.member(t) for t in sharding.tiles())


def test_a_shape_of_another_rank_is_an_error():
    sharding = Sharding(MESH, (("R",), ("C",)))
    with pytest.raises(ShardingError, match="axes"):
        visualize_sharding((8,), sharding)
    with pytest.raises(ShardingError, match="axes"):
        sharding_svg((8,), sharding)


# -- SVG


def test_tiles_of_a_drawing_are_true_to_scale_for_uneven_parts():
    sharding = Sharding(Mesh(("x",), (3,)), (("x",),), bounds=((0, 10, 60, 100),))
    widths = [float(rect["width"]) for _, rect in rectangles(sharding_svg((100,), sharding))]
    assert np.allclose(np.array(widths) / sum(widths), [0.1, 0.5, 0.4], atol=0.01)


def test_both_axes_have_one_scale():
    ((_, rect),) = rectangles(sharding_svg((50, 100), Sharding(Mesh(("x",), (1,)), ((), ()))))
    assert float(rect["width"]) == 2 * float(rect["height"])


def test_tooltips_name_tile_ranges_and_members():
    found = rectangles(sharding_svg((8, 10), Sharding(MESH, (("R",), ("C",)))))
    assert [text for text, _ in found][5] == "tile 1, 1: 4:8, 2:5, member 5"
    assert [rect["fill"] for _, rect in found] == [member_colour(m) for m in range(8)]


def test_three_axes_are_sheets_drawn_from_the_back():
    mesh = Mesh(("x", "y", "z"), (3, 2, 2))
    found = rectangles(sharding_svg((9, 4, 4), Sharding(mesh, (("x",), ("y",), ("z",)))))
    assert len(found) == 12
    assert found[0][0].startswith("tile 2, 0, 0:")
    assert found[-1][0].startswith("tile 0, 1, 1:")
    assert float(found[0][1]["x"]) > float(found[-1][1]["x"]) - float(found[-1][1]["width"])


def test_a_drawing_of_many_tiles_is_bounded():
    mesh = Mesh(("x", "%1"), (10, 10_000))
    svg = sharding_svg((1_000_000,), Sharding(mesh, (("%1", "x"),)))
    assert len(rectangles(svg)) == MAX_RECTANGLES
    assert len(svg) < 20_000
    assert rectangles(svg)[0][0] == "tile 0..4165: 0:41660, from member 0"


def test_the_title_is_the_type_and_names_axes_that_are_not_drawn():
    sharding = Sharding(MESH, ((), ("R",), (), ("C",)))
    title = ElementTree.fromstring(sharding_svg((2, 4, 6, 8), sharding, np.dtype("f8"))).find(f"{SVG}title")
    assert title.text == "f64[2, 2{R}4, 6, 2{C}8] (axis 2 not drawn)"


@given(types())
def test_any_type_can_be_drawn_as_well_formed_svg(case):
    shape, sharding = case
    svg = sharding_svg(shape, sharding, np.dtype("f4"))
    found = rectangles(svg)
    drawn = sorted(sharding.parts, reverse=True)[:3]
    assert len(found) == np.prod([min(n, MAX_RECTANGLES) for n in drawn], dtype=int)
    assert "nan" not in svg


def test_colours_of_many_members_differ():
    assert len({member_colour(m) for m in range(64)}) == 64
