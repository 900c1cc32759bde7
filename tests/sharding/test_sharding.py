import pickle
from math import prod

import numpy as np
import pytest
from hypothesis import given

from distarray.errors import ShardingError
from distarray.sharding.cuts import boundaries, largest_part
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing import strategies as dst

MESH = Mesh(("x", "y", "z"), (4, 2, 3))


# -- elements ---------------------------------------------------------------------------------------------------


@given(dst.sharded())
def test_tiles_partition_the_array(case):
    """Each element lies in exactly one tile; parts may be empty or uneven (B-12, B-30)."""
    shape, sharding = case
    hits = np.zeros(shape, int)
    for tile in sharding.tiles():
        hits[sharding.tile_slices(shape, tile)] += 1
    assert (hits == 1).all()
    assert len(list(sharding.tiles())) == sharding.n_tiles == prod(sharding.parts)


@given(dst.sharded())
def test_slices_box_and_shape_of_a_tile_agree(case):
    shape, sharding = case
    largest = np.zeros(len(shape), int)
    for tile in sharding.tiles():
        box = sharding.tile_box(shape, tile)
        assert sharding.tile_slices(shape, tile) == tuple(slice(*ends) for ends in box)
        assert sharding.shard_shape(shape, tile) == tuple(b - a for a, b in box)
        largest = np.maximum(largest, sharding.shard_shape(shape, tile))
    assert sharding.shard_shape(shape) == tuple(largest)


@given(dst.sharded(explicit=False))
def test_regular_boundaries_follow_the_cut_rule(case):
    """B-12."""
    shape, sharding = case
    assert sharding.is_regular
    assert sharding.boundaries(shape) == tuple(map(boundaries, shape, sharding.parts))
    assert sharding.shard_shape(shape) == tuple(-(-n // k) for n, k in zip(shape, sharding.parts, strict=True))


def test_minor_axis_first_means_c_fastest():
    """B-12: an axis cut by {C,R} has R * C parts, C fastest."""
    sharding = Sharding(Mesh(("R", "C"), (2, 4)), (("C", "R"),))
    assert [sharding.place((t,)) for t in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]
    swapped = Sharding(Mesh(("R", "C"), (2, 4)), (("R", "C"),))
    assert [swapped.place((t,)) for t in range(8)] == [0, 4, 1, 5, 2, 6, 3, 7]


def test_offsets_are_those_of_the_paper():
    """R-3's maps: `[3{x}12, 2{y}12]` on x=4, y=6 puts place (i, j) at offset (3i, 2j)."""
    mesh = Mesh(("x", "y"), (4, 6))
    sharding = Sharding(mesh, (("x",), ("y",)))
    for place in range(24):
        i, j = mesh.coordinates(place)
        assert sharding.tile_box((12, 12), sharding.tile(place)) == ((3 * i, 3 * i + 3), (2 * j, 2 * j + 2))


# -- places -----------------------------------------------------------------------------------------------------


@given(dst.sharded())
def test_places_of_tiles_partition_the_mesh(case):
    """Each place holds one addend of one tile, and `tile`, `addend` are the inverse of `places`."""
    _, sharding = case
    seen = []
    for tile in sharding.tiles():
        for addend in range(sharding.n_addends):
            places = sharding.places(tile, addend)
            assert len(places) == sharding.n_replicas
            assert list(places) == sorted(places)
            assert places[0] == sharding.place(tile, addend)
            assert {sharding.tile(place) for place in places} == {tile}
            assert {sharding.addend(place) for place in places} == {addend}
            seen += places
    assert sorted(seen) == list(range(sharding.mesh.size))


@given(dst.sharded())
def test_tile_of_a_place_reads_its_coordinates(case):
    """The tile index counts the mesh axes of the array axis, the first one fastest."""
    _, sharding = case
    for place in range(sharding.mesh.size):
        coordinates = dict(zip(sharding.mesh.names, sharding.mesh.coordinates(place), strict=True))
        expected = []
        for names in sharding.axes:
            number = 0
            for name in reversed(names):
                number = number * sharding.mesh.axis_size(name) + coordinates[name]
            expected.append(number)
        assert sharding.tile(place) == tuple(expected)


@given(dst.sharded())
def test_members_are_those_of_the_places(case):
    _, sharding = case
    for tile in sharding.tiles():
        of_places = {sharding.mesh.member(place) for place in sharding.places(tile)}
        assert set(sharding.members(tile)) == of_places
        assert sharding.member(tile) == sharding.mesh.member(sharding.place(tile))
        assert max(of_places) < sharding.mesh.n_members


def test_wave_axis_first_is_blocked_and_last_is_cyclic():
    mesh = Mesh(("x",), (2,)).with_waves(3)
    blocked = Sharding(mesh, (("%1", "x"),))
    cyclic = Sharding(mesh, (("x", "%1"),))
    assert [blocked.member((t,)) for t in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [cyclic.member((t,)) for t in range(6)] == [0, 1, 0, 1, 0, 1]


def test_waves_refine_the_cut_of_the_team():
    """B-12: with waves, member i still holds the elements that it holds without them."""
    team = Mesh(("x",), (3,))
    coarse = Sharding(team, (("x",),))
    fine = Sharding(team.with_waves(4), (("%1", "x"),))
    for n in range(40):
        for member in range(3):
            boxes = [fine.tile_box((n,), t)[0] for t in fine.tiles() if fine.member(t) == member]
            assert (boxes[0][0], boxes[-1][1]) == coarse.tile_box((n,), (member,))[0]


def test_whole_is_replicated_everywhere():
    sharding = Sharding.whole(MESH, 2, "F")
    assert sharding.n_replicas == MESH.size
    assert sharding.parts == (1, 1)
    assert sharding.free_axes == ("x", "y", "z")
    assert sharding.places((0, 0)) == tuple(range(24))
    assert sharding.layout == (1, 0)
    assert Sharding.whole(Mesh(), 0).places(()) == (0,)


def test_addends_are_no_replicas():
    sharding = Sharding(MESH, ((), ("x",)), (("z", "sum"),))
    assert (sharding.n_addends, sharding.n_replicas, sharding.n_tiles) == (3, 2, 4)
    assert sharding.places((0, 1), addend=2) == (MESH.place((1, 0, 2)), MESH.place((1, 1, 2)))


def test_a_place_outside_the_mesh_is_an_error():
    with pytest.raises(ShardingError, match="place 24"):
        Sharding.whole(MESH, 1).tile(24)


# -- validation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (
            (("x",), ("x",)),
            r"sharding=\('x', 'x'\) names mesh axis 'x' for array axes 0 and 1; a mesh axis can",
        ),
        ((("x", "x"), ()), r"names mesh axis 'x' twice for array axis 0"),
        ((("x", "y"), ("y",)), r"names mesh axis 'y' for array axes 0 and 1"),
        ((("w",), ()), r"names mesh axis 'w', which does not exist; the mesh has x, y, z"),
    ],
)
def test_a_mesh_axis_cuts_one_array_axis(axes, text):
    """C-15."""
    with pytest.raises(ShardingError, match=text):
        Sharding(MESH, axes)


@pytest.mark.parametrize(
    ("unreduced", "text"),
    [
        ((("x", "sum"),), "'x' is left unreduced by sum, but it cuts array axis 0"),
        ((("y", "sum"), ("y", "max")), "'y' is left unreduced by max, but it is reduced by sum already"),
        ((("w", "sum"),), "'w', which does not exist"),
        ((("y", "median"),), "'y' has the monoid 'median'; use one of sum, prod"),
    ],
)
def test_an_unreduced_axis_does_nothing_else(unreduced, text):
    with pytest.raises(ShardingError, match=text):
        Sharding(MESH, (("x",), ()), unreduced)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (((0, 3, 7, 10), None), "axis 0 is cut into 4 parts, but its boundaries .* make 3"),
        (((0, 3, 2, 7, 10), None), "axis 0: .* decrease from 3 to 2"),
        (((1, 3, 5, 7, 10), None), "axis 0: .* begin with 0"),
        ((None, (0, 4, 9)), "axis 1 is cut into 1 parts"),
        ((None,), "given for 1 axes of an array with 2"),
    ],
)
def test_boundaries_match_the_parts(bounds, text):
    with pytest.raises(ShardingError, match=text):
        Sharding(MESH, (("x",), ()), bounds=bounds)


def test_a_layout_is_a_permutation_of_the_axes():
    """C-15."""
    with pytest.raises(ShardingError, match="is no order of the 2 axes"):
        Sharding(MESH, ((), ()), layout=(0, 1, 2))


def test_shape_must_fit_rank_and_boundaries():
    sharding = Sharding(MESH, (("y",), ()), bounds=((0, 1, 10), None))
    with pytest.raises(ShardingError, match=r"shape \(10,\) has 1 axes, but .* is for 2"):
        sharding.boundaries((10,))
    with pytest.raises(ShardingError, match="of axis 0 end at 10, but its extent is 11"):
        sharding.boundaries((11, 4))


# -- values -----------------------------------------------------------------------------------------------------


@given(dst.sharded())
def test_sharding_survives_pickle_as_the_same_value(case):
    _, sharding = case
    hash(sharding)
    again = pickle.loads(pickle.dumps(sharding))
    assert again == sharding
    assert hash(again) == hash(sharding)
    assert again.parts == sharding.parts


@given(dst.sharded())
def test_repr_evaluates_to_the_same_value(case):
    _, sharding = case
    text = repr(sharding)
    start = text.index("Mesh(")
    mesh_text = text[start : text.index(")", start) + 1]
    assert mesh_text == repr(sharding.mesh)
    again = eval(text.replace(mesh_text, "mesh"), {"Sharding": Sharding, "mesh": sharding.mesh})
    assert again.axes == sharding.axes
    assert again.with_layout(sharding.layout) == sharding


def test_defaults_are_normalised():
    sharding = Sharding(MESH, (("x",), ()))
    assert sharding.bounds == (None, None)
    assert sharding.layout == (0, 1)
    assert sharding == Sharding(MESH, (("x",), ()), (), (None, None), (0, 1))
    assert Sharding(MESH, ("x", None)) == sharding


def test_explicit_boundaries_that_are_regular_become_none():
    sharding = Sharding(MESH, (("x",), ()), bounds=(boundaries(10, 4), (0, 7)))
    assert sharding.bounds == (None, None)
    assert sharding == Sharding(MESH, (("x",), ()))


def test_every_field_is_part_of_the_value():
    base = Sharding(MESH, (("x",), ()))
    others = [
        Sharding(Mesh(("x", "y"), (4, 6)), (("x",), ())),
        Sharding(MESH, (("y",), ())),
        Sharding(MESH, (("x",), ()), (("y", "sum"),)),
        Sharding(MESH, (("x",), ()), (("y", "max"),)),
        base.with_bounds(((0, 1, 2, 3, 10), None)),
        base.with_layout("F"),
    ]
    assert len({base, *others}) == 7
    assert base != "sharding"


def test_sharding_is_frozen():
    with pytest.raises(AttributeError):
        Sharding(MESH, ((),)).axes = ()


def test_largest_shard_of_explicit_boundaries():
    sharding = Sharding(MESH, (("x",),), bounds=((0, 3, 3, 7, 10),))
    assert sharding.shard_shape((10,)) == (4,)
    assert sharding.shard_shape((10,), (1,)) == (0,)
    assert largest_part(sharding.boundaries((10,))[0]) == 4
