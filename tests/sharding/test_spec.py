import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import (
    format_type,
    from_json,
    parse_mesh,
    parse_sharding,
    parse_type,
    swap_axis_order,
    to_json,
)
from distarray.testing import strategies as dst

XY = Mesh(("x", "y"), (4, 2))
F64 = np.dtype("f8")


# -- text -------------------------------------------------------------------------------------------------------


@given(dst.sharded(), st.none() | dst.dtypes())
def test_printing_and_parsing_a_type_are_inverse(case, dtype):
    shape, sharding = case
    assert parse_type(format_type(shape, dtype, sharding), sharding.mesh) == (dtype, shape, sharding)


@given(dst.sharded(), st.none() | dst.dtypes())
def test_spaces_do_not_matter(case, dtype):
    shape, sharding = case
    text = format_type(shape, dtype, sharding)
    for mark in "{},;+()":
        text = text.replace(mark, f" {mark} ")
    assert parse_type(f" {text} ", sharding.mesh) == (dtype, shape, sharding)


@given(dst.sharded(), st.none() | dst.dtypes())
def test_json_and_back_is_the_same_type(case, dtype):
    shape, sharding = case
    data = json.loads(json.dumps(to_json(shape, sharding, dtype)))
    assert from_json(data, sharding.mesh) == (dtype, shape, sharding)


@given(dst.meshes())
def test_printing_and_parsing_a_mesh_are_inverse(mesh):
    assert parse_mesh(str(mesh)) == mesh


@given(dst.shapes(), st.none() | dst.dtypes())
def test_an_array_not_placed_prints_its_extents(shape, dtype):
    assert parse_type(format_type(shape, dtype), XY) == (dtype, shape, Sharding.whole(XY, len(shape)))


@pytest.mark.parametrize(
    ("text", "mesh", "shape", "sharding"),
    [
        ("f64[8{x}256, 1024]", {"x": 32}, (256, 1024), lambda m: Sharding(m, (("x",), ()))),
        ("f64[32{x,y}128, 64]", {"x": 2, "y": 2}, (128, 64), lambda m: Sharding(m, (("x", "y"), ()))),
        (
            "f64[8{C,R}64, 32] order=F",
            {"R": 2, "C": 4},
            (64, 32),
            lambda m: Sharding(m, (("C", "R"), ()), layout=(1, 0)),
        ),
        ("f64[4{x; 0,3,7,10}10]", {"x": 3}, (10,), lambda m: Sharding(m, (("x",),), bounds=((0, 3, 7, 10),))),
        ("f64[4{x; 0,3,3,7,10}10]", {"x": 4}, (10,), lambda m: Sharding(m, (("x",),), bounds=((0, 3, 3, 7, 10),))),
        ("f64[128, 64]+{k}", {"k": 2}, (128, 64), lambda m: Sharding(m, ((), ()), (("k", "sum"),))),
        ("f64[128, 64] max{k}", {"k": 2}, (128, 64), lambda m: Sharding(m, ((), ()), (("k", "max"),))),
        (
            "f64[8]+{k,l} max{m}+{n}",
            {"k": 2, "l": 2, "m": 2, "n": 2},
            (8,),
            lambda m: Sharding(m, ((),), (("k", "sum"), ("l", "sum"), ("m", "max"), ("n", "sum"))),
        ),
        (
            "f64[3{x}12, 2{y}12, 5] order=(2,0,1)",
            {"x": 4, "y": 6},
            (12, 12, 5),
            lambda m: Sharding(m, (("x",), ("y",), ()), layout=(2, 0, 1)),
        ),
        ("f64[2{%1,x}15]", {"x": 2, "%1": 4}, (15,), lambda m: Sharding(m, (("%1", "x"),))),
        ("f64[]", {}, (), lambda m: Sharding(m, ())),
        ("f64[1{x}3]", {"x": 4}, (3,), lambda m: Sharding(m, (("x",),))),
        ("f64[0{x}0]", {"x": 4}, (0,), lambda m: Sharding(m, (("x",),))),
    ],
)
def test_the_notation_of_the_design(text, mesh, shape, sharding):
    mesh = Mesh(tuple(mesh), tuple(mesh.values()))
    expected = sharding(mesh)
    assert format_type(shape, F64, expected) == text
    assert parse_type(text, mesh) == (F64, shape, expected)


def test_uneven_cuts_print_the_largest_tile():
    assert format_type((10, 7), None, Sharding(XY, (("x",), ("y",)))) == "[3{x}10, 4{y}7]"


def test_sizes_of_mesh_axes_may_be_written_and_are_checked():
    assert parse_type("[3{x:4}12, 5]", XY) == parse_type("[3{x}12, 5]", XY)
    with pytest.raises(ShardingError, match="gives mesh axis 'x' the size 3; it is 4"):
        parse_type("[3{x:3}12, 5]", XY)


def test_a_wave_axis_with_its_size_extends_the_mesh():
    _, _, sharding = parse_type("[1{%1:3,x}12]", XY)
    assert sharding.mesh == Mesh(("x", "y", "%1"), (4, 2, 3))
    with pytest.raises(ShardingError, match="'%1', which does not exist"):
        parse_type("[1{%1,x}12]", XY)


def test_empty_braces_are_an_uncut_axis():
    assert parse_type("[12{}12, 5]", XY) == parse_type("[12, 5]", XY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no type"),
        ("f64", "is no type"),
        ("f65[3]", "not the notation of a dtype"),
        ("g64[3]", "is no type"),
        ("[3{x}12", "is no type"),
        ("[3{x}12]]", "cannot read ']'"),
        ("[3{x}12, ]", "axis 1 is ''"),
        ("[3{x 12]", "axis 0 is '3{x 12'"),
        ("[{x}12]", "axis 0 is '{x}12'"),
        ("[-3]", "axis 0 is '-3'"),
        ("[3{w}12]", "'w', which does not exist; the mesh has x, y"),
        ("[3{x,}12]", "''"),
        ("[3{x}12, 3{x}12]", "'x' for array axes 0 and 1"),
        ("[4{x}12]", "axis 0 has tiles of 4, but 12 elements in 4 parts make tiles of 3"),
        ("[2{}12]", "axis 0 has tiles of 2"),
        ("[4{x; 0,3,7,10}10]", "cut into 4 parts, but its boundaries"),
        ("[4{x; 0,3,3,7,9}10]", "end at 9, but its extent is 10"),
        ("[4{x; 0,3,a,7,10}10]", "are not integers"),
        ("[12]+{x", "cannot read"),
        ("[12]+{w}", "'w', which does not exist"),
        ("[12] mean{x}", "'mean' is no monoid"),
        ("[3{x}12]+{x}", "'x' is left unreduced by sum, but it cuts array axis 0"),
        ("[12] order=K", "cannot read"),
        ("[12, 3] order=(0,2)", "is no order of the 2 axes"),
        ("[3{x:y}12]", "is no mesh axis"),
    ],
)
def test_bad_types_say_what_is_wrong(text, message):
    with pytest.raises(ShardingError) as caught:
        parse_type(text, XY)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["x", "x=", "x=a", "x=4;y=2", "x=4,x=2", "x=0", "=4"])
def test_bad_meshes_are_errors(text):
    with pytest.raises(ShardingError):
        parse_mesh(text)


# -- JSON -------------------------------------------------------------------------------------------------------


def test_json_is_that_of_the_specification():
    mesh = Mesh(("x", "y", "z"), (4, 2, 3))
    data = {"global": [12, 12, 5], "parts": [["x"], ["y", "z"], []]}
    assert from_json(data, mesh) == (None, (12, 12, 5), Sharding(mesh, (("x",), ("y", "z"), ())))
    assert to_json((12, 12, 5), Sharding(mesh, (("x",), ("y", "z"), ()))) == data
    explicit = {"global": [5, 10], "parts": [[], ["x"]], "bounds": [None, [0, 3, 3, 7, 10]], "unreduced": ["y"]}
    assert to_json((5, 10), from_json(explicit, mesh)[2]) == explicit


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        "[12]",
        {"global": [12]},
        {"global": [12], "parts": ["x"]},
        {"global": [12], "parts": [[], []]},
        {"global": [12.5], "parts": [[]]},
        {"global": [-1], "parts": [[]]},
        {"global": 12, "parts": [[]]},
        {"global": [12], "parts": [["x"]], "bounds": [3]},
        {"global": [12], "parts": [["x"]], "bounds": [[0, 1, 2, 3, 11]]},
        {"global": [12], "parts": [["w"]]},
        {"global": [12], "parts": [[4]]},
        {"global": [12], "parts": [[]], "unreduced": [4]},
        {"global": [12], "parts": [[]], "unreduced": [["x"]]},
        {"global": [12], "parts": [[]], "dtype": "f65"},
        {"global": [12], "parts": [[]], "order": "K"},
        {"global": [12], "parts": [[]], "order": 5},
    ],
)
def test_bad_json_is_a_sharding_error(data):
    with pytest.raises(ShardingError):
        from_json(data, XY)


# -- the user's sharding= ---------------------------------------------------------------------------------------


@given(dst.sharded())
def test_all_ways_to_say_a_cut_agree(case):
    shape, sharding = case
    plain = Sharding(sharding.mesh, sharding.axes)
    mesh = sharding.mesh
    assert parse_sharding(plain.axes, shape, mesh) == plain
    assert parse_sharding(list(map(list, plain.axes)), shape, mesh) == plain
    assert parse_sharding(tuple(n[0] if len(n) == 1 else n or None for n in plain.axes), shape, mesh) == plain
    assert parse_sharding(format_type(shape, None, sharding), shape, mesh) == sharding
    assert parse_sharding(sharding, shape, mesh) is sharding


def test_none_cuts_nothing():
    assert parse_sharding(None, (3, 4), XY) == Sharding.whole(XY, 2)


def test_layout_argument_overrides():
    assert parse_sharding(("x", None), (3, 4), XY, layout="F").layout == (1, 0)
    assert parse_sharding("[1{x}3, 4] order=F", (3, 4), XY).layout == (1, 0)
    assert parse_sharding("[1{x}3, 4] order=F", (3, 4), XY, layout="C").layout == (0, 1)


def test_axes_that_nobody_names_are_whole():
    assert parse_sharding(("x",), (3, 4), XY) == parse_sharding(("x", None), (3, 4), XY)
    assert parse_sharding((), (3, 4), XY) == parse_sharding((None, None), (3, 4), XY)


def test_a_sharding_may_refine_the_mesh_of_the_team():
    fine = Sharding(Mesh(("a", "b"), (2, 4)).with_waves(3), (("%1", "a"), ("b",)))
    assert parse_sharding(fine, (30, 8), XY) is fine


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (("x", None, None), "has 3 entries, but the array has 2 axes"),
        (("x", "x"), "'x' for array axes 0 and 1"),
        ((("x", "y"), "y"), "'y' for array axes 0 and 1"),
        (("w", None), "'w', which does not exist; the mesh has x, y"),
        ((0, None), "entry 0 of axis 0"),
        ((("x", 3), None), "entry ('x', 3) of axis 0"),
        (7, "is neither None, a tuple"),
        ("x", "did you mean ('x',)"),
        ("[3{x}12]", "is for the shape (12,), but the array has (12, 8)"),
        ("[3{x}12, 9]", "is for the shape (12, 9)"),
        ("f32[3{x}12, 8]", "is for dtype float32, but the array has float64"),
        (Sharding.whole(XY, 1), "is for 1 axes, but the array has 2"),
        (Sharding.whole(Mesh(("x",), (9,)), 2), "with 9 members"),
        (Sharding(XY, (("x",), ()), bounds=((0, 1, 2, 3, 11), None)), "end at 11, but its extent is 12"),
    ],
)
def test_bad_shardings_are_value_errors_at_the_call(user, message):
    """C-14, C-15."""
    with pytest.raises(ValueError) as caught:
        parse_sharding(user, (12, 8), XY, dtype=F64)
    assert message in str(caught.value)


def test_bad_layout_argument_is_an_error():
    """C-15."""
    with pytest.raises(ValueError, match="is no order of the 2 axes"):
        parse_sharding(("x", None), (12, 8), XY, layout=(0, 0))


def test_axis_order_of_jax_is_ours_reversed():
    """Redistribution 1.1: PartitionSpec(("R", "C"), None) is major first; one function converts both ways."""
    assert swap_axis_order((("R", "C"), None, "x")) == (("C", "R"), None, "x")


@given(dst.sharded())
def test_swapping_the_axis_order_twice_changes_nothing(case):
    _, sharding = case
    major_first = swap_axis_order(sharding.axes)
    assert swap_axis_order(major_first) == sharding.axes
    for ours, theirs in zip(sharding.axes, major_first, strict=True):
        assert list(ours) == list(theirs)[::-1]
