"""Prime axes: the same places under other names."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import coarsened, prime_factors, prime_mesh, refined
from distarray.sharding.sharding import Sharding


@given(st.integers(1, 500))
def test_factors_are_primes_and_multiply_to_the_number(n: int) -> None:
    product = 1
    for q in prime_factors(n):
        assert all(q % d for d in range(2, q))
        product *= q
    assert product == n


@st.composite
def shardings(draw: st.DrawFn) -> tuple[Mesh, Sharding]:
    team = Mesh(("R", "C", "R_1"), tuple(draw(st.lists(st.sampled_from([1, 2, 4, 6]), min_size=3, max_size=3))))
    mesh = team.with_waves(3) if draw(st.booleans()) else team
    names = draw(st.permutations(list(mesh.names)))
    ends = sorted(draw(st.lists(st.integers(0, len(names)), min_size=2, max_size=2)))
    return team, Sharding(mesh, (tuple(names[: ends[0]]), tuple(names[ends[0] : ends[1]])))


@given(shardings())
def test_every_tile_keeps_its_place(drawn: tuple[Mesh, Sharding]) -> None:
    team, sharding = drawn
    fine = refined(sharding)
    assert fine.parts == sharding.parts
    assert [fine.place(t) for t in fine.tiles()] == [sharding.place(t) for t in sharding.tiles()]
    assert [fine.member(t) for t in fine.tiles()] == [sharding.member(t) for t in sharding.tiles()]
    assert coarsened(fine, team) == sharding


@given(shardings())
def test_names_of_prime_axes_are_nobody_elses(drawn: tuple[Mesh, Sharding]) -> None:
    team, _ = drawn
    fine = prime_mesh(team)
    assert fine.size == team.size
    assert prime_mesh(fine) == fine


@pytest.mark.parametrize("cut", [*permutations(("x_1", "x_2", "x_3"), 2), ("x_1", "x_2", "x_3")])
def test_what_the_coarse_mesh_cannot_say_stays_as_it_is(cut: tuple[str, ...]) -> None:
    team = Mesh(("x",), (8,))
    fine = Sharding(prime_mesh(team), (cut, ()))
    assert coarsened(fine, team) is fine
