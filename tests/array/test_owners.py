"""Arrays whose mesh lists the owner of each place compute what numpy computes, and lie where the list says."""

from __future__ import annotations

import pickle
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import refined
from distarray.sharding.sharding import Sharding
from distarray.testing import counting
from distarray.testing import strategies as dst

TEAM = dx.Team((4,), ("d",), members=range(4))
X = np.arange(60.0).reshape(5, 12) % 7
Y = np.arange(48.0).reshape(12, 4) % 5


@st.composite
def owned(draw, shape):
    return draw(dst.shardings(draw(dst.owned_meshes(4)), shape, explicit=False, unreduced=False))


def lies(x, sharding):
    """Whether every block is at the first of its owners."""
    return [block.member for block in x.iter_blocks()] == [sharding.member(tile) for tile in sharding.tiles()]


@given(owned((5, 12)))
def test_members_are_the_owners_of_the_places(sharding):
    for tile in sharding.tiles():
        owners = {sharding.mesh.owners[place] for place in sharding.places(tile)}
        assert set(sharding.members(tile)) == owners
        assert sharding.member(tile) == sharding.mesh.owners[sharding.places(tile)[0]]
    fine = refined(sharding)
    assert [fine.members(tile) for tile in fine.tiles()] == [sharding.members(tile) for tile in sharding.tiles()]
    assert pickle.loads(pickle.dumps(sharding)) == sharding


@settings(max_examples=40)
@given(owned((5, 12)), owned((5, 12)))
def test_arrays_go_from_owners_to_owners(source, target):
    x = dx.asarray(X, team=TEAM, sharding=source)
    y = x.reshard(target).persist()
    assert y.sharding == target
    assert lies(y, target)
    np.testing.assert_array_equal(np.asarray(y), X)


@settings(max_examples=15)
@given(owned((5, 12)), owned((12, 4)), owned((12,)))
def test_operations_on_owned_arrays_are_those_of_numpy(a, b, c):
    x, y = dx.asarray(X, team=TEAM, sharding=a), dx.asarray(Y, team=TEAM, sharding=b)
    z = dx.asarray(X[0], team=TEAM, sharding=c)
    with np.errstate(divide="ignore", invalid="ignore"):
        for found, expected in [
            (dx.exp(x) + z, np.exp(X) + X[0]),
            (x @ y, X @ Y),
            (x.sum(axis=0) * z, X.sum(axis=0) * X[0]),
            (dx.argmax(x, axis=1), np.argmax(X, axis=1)),
            (dx.cumsum(x[1:, ::2].T, axis=0), np.cumsum(X[1:, ::2].T, axis=0)),
            (dx.reshape(x, (-1, 4)) @ dx.permute_dims(y, (1, 0)), X.reshape(-1, 4) @ Y.T),
            (dx.sort(y, axis=0), np.sort(Y, axis=0)),
        ]:
            np.testing.assert_allclose(np.asarray(found), expected)


@settings(max_examples=30)
@given(owned((5, 12)))
def test_elementwise_work_on_one_array_stays_where_it_lies(sharding):
    assume(sharding.n_tiles > 1)  # what is small and one block is computed without asking where
    x = dx.asarray(X, team=TEAM, sharding=sharding).persist()
    with counting() as counters:
        y = (dx.exp(x) * 2 + 1).persist()
    assert counters.bytes_moved == 0
    assert lies(y, sharding)


def test_writes_stay_with_the_owner():
    sharding = Sharding(Mesh(("c",), (3,), (2, 0, 2)), (("c",), ()))
    x = dx.asarray(X, team=TEAM, sharding=sharding)
    x[1:4] *= 2
    expected = X.copy()
    expected[1:4] *= 2
    np.testing.assert_array_equal(np.asarray(x), expected)
    assert lies(x, sharding)


def test_owners_are_members_of_the_team():
    with pytest.raises(dx.ShardingError, match="with 5 members, but the team is"):
        dx.asarray(X, team=TEAM, sharding=Sharding(Mesh((), (), (4,)), ((), ())))


def test_arrays_keep_their_owners_on_another_team_and_in_a_saved_state(tmp_path):
    sharding = Sharding(Mesh(("c",), (3,), (2, 0, 2)), (("c",), ()))
    x = dx.exp(dx.asarray(X, team=TEAM, sharding=sharding)).persist()
    assert x.to_team(dx.Team((2, 2), ("a", "b"), members=range(4))).sharding == sharding
    dx.save_state(tmp_path / "s", x=x)
    again = dx.load_state(tmp_path / "s", team=TEAM)["x"]
    assert again.sharding == sharding


def some(random, mesh=None):
    """A type with owners of four members, on a mesh of its own or on the one that is given."""
    if mesh is None:
        sizes = random.choice([(2, 2), (4,), (3,), (2, 3)])
        mesh = Mesh(tuple("xyz"[: len(sizes)]), sizes, tuple(random.randrange(4) for _ in range(prod(sizes))))
    roles = {name: random.randrange(3) for name in mesh.names}
    return Sharding(mesh, tuple(tuple(name for name, role in roles.items() if role == axis) for axis in (0, 1)))


@pytest.mark.cluster
def test_owned_arrays_move_on_a_cluster_by_collectives_and_exchanges(cluster4):
    random = Random(3)
    for i in range(8):
        source = some(random)
        target = some(random, source.mesh if i % 2 else None)
        x = dx.asarray(X, sharding=source)
        y = dx.exp(x).reshard(target)
        np.testing.assert_allclose(np.asarray(x.T @ y), X.T @ np.exp(X))
        y.persist()
        assert lies(y, target)
        np.testing.assert_allclose(np.asarray(y), np.exp(X))


@pytest.mark.cluster
def test_owned_arrays_on_a_cluster(cluster4):
    sharding = Sharding(Mesh(("c", "r"), (3, 2), (2, 0, 3, 3, 2, 1)), (("c",), ()))
    x = dx.asarray(X, sharding=sharding)
    columns = Sharding(Mesh(("c",), (2,), (3, 1)), ((), ("c",)))
    y = dx.exp(x).reshard(columns).persist()
    assert lies(y, columns)
    np.testing.assert_allclose(np.asarray(y), np.exp(X))
    np.testing.assert_allclose(np.asarray(x @ dx.asarray(Y)), X @ Y)
    np.testing.assert_allclose(np.asarray(y.sum(axis=1) + x.sum(axis=1)), np.exp(X).sum(axis=1) + X.sum(axis=1))
