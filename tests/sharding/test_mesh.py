import pickle

import numpy as np
import pytest
from hypothesis import given

from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh, is_wave
from distarray.testing import strategies as dst


@given(dst.meshes())
def test_places_are_row_major(mesh):
    numbers = np.arange(mesh.size).reshape(mesh.sizes)
    for coordinates in np.ndindex(*mesh.sizes):
        assert mesh.place(coordinates) == numbers[coordinates]


@given(dst.meshes())
def test_place_and_coordinates_are_inverse(mesh):
    assert [mesh.place(mesh.coordinates(place)) for place in range(mesh.size)] == list(range(mesh.size))


@given(dst.meshes())
def test_member_is_the_place_without_the_waves(mesh):
    plain = mesh.without_waves()
    assert mesh.n_members == plain.size
    for place in range(mesh.size):
        kept = [c for c, name in zip(mesh.coordinates(place), mesh.names, strict=True) if not is_wave(name)]
        assert mesh.member(place) == plain.place(kept)


@given(dst.meshes())
def test_mesh_survives_pickle_as_the_same_value(mesh):
    again = pickle.loads(pickle.dumps(mesh))
    assert again == mesh
    assert hash(again) == hash(mesh)


@given(dst.owned_meshes(5))
def test_owners_say_whom_a_place_belongs_to(mesh):
    assert [mesh.member(place) for place in range(mesh.size)] == list(mesh.owners)
    assert mesh.n_members == 1 + max(mesh.owners)
    again = pickle.loads(pickle.dumps(mesh))
    assert again == mesh
    assert hash(again) == hash(mesh)
    plain = Mesh(mesh.names, mesh.sizes)
    assert plain != mesh
    assert mesh.renamed([f"{name}_" for name in mesh.names]).owners == mesh.owners


@given(dst.owned_meshes(5))
def test_waves_of_a_place_have_its_owner(mesh):
    waves = mesh.with_waves(3, 2)
    assert [waves.member(place) for place in range(waves.size)] == [m for m in mesh.owners for _ in range(6)]
    assert waves.without_waves() == mesh


def test_mesh_without_axes_has_one_place():
    mesh = Mesh()
    assert (mesh.size, mesh.n_members, mesh.coordinates(0), mesh.place(())) == (1, 1, (), 0)


def test_meshes_with_other_names_or_order_differ():
    mesh = Mesh(("x", "y"), (2, 2))
    assert mesh == Mesh(("x", "y"), (2, 2))
    assert mesh != Mesh(("y", "x"), (2, 2))
    assert mesh != Mesh(("x", "y"), (2, 4))


def test_waves_are_appended_with_fresh_names():
    mesh = Mesh(("x", "%2"), (2, 3)).with_waves(5, 4)
    assert mesh.names == ("x", "%2", "%3", "%4")
    assert mesh.sizes == (2, 3, 5, 4)
    assert mesh.without_waves() == Mesh(("x",), (2,))


@pytest.mark.parametrize(
    ("names", "sizes", "text"),
    [
        (("x", "x"), (2, 2), "'x' is named 2 times"),
        (("x",), (2, 3), "1 axis names .* 2 sizes"),
        (("x",), (0,), "'x' has size 0"),
        (("1x",), (2,), "'1x' is no name"),
        (("%0",), (2,), "'%0' is no name"),
        (("%x",), (2,), "'%x' is no name"),
        (("",), (2,), "'' is no name"),
    ],
)
def test_bad_meshes_name_the_axis(names, sizes, text):
    with pytest.raises(ShardingError, match=text):
        Mesh(names, sizes)


@pytest.mark.parametrize("owners", [(0,), (0, 1, 2), (0, -1)])
def test_every_place_has_one_owner(owners):
    with pytest.raises(ShardingError, match="must name the member of each of the 2 places"):
        Mesh(("x",), (2,), owners)


def test_unknown_axis_place_and_coordinates_are_errors():
    mesh = Mesh(("x", "y"), (2, 3))
    with pytest.raises(ShardingError, match="'z' does not exist; the mesh has the axes x, y"):
        mesh.axis_size("z")
    with pytest.raises(ShardingError, match=r"place 6 is not in .* 0 to 5"):
        mesh.coordinates(6)
    with pytest.raises(ShardingError, match=r"\(1, 3\) are not in"):
        mesh.place((1, 3))
    with pytest.raises(ShardingError, match="place -1"):
        mesh.member(-1)


def test_mesh_is_frozen():
    with pytest.raises(AttributeError):
        Mesh(("x",), (2,)).sizes = (3,)
