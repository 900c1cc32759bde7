"""Making: programs that make blocks which others promised give the same results, and hold them only while they read."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from member_graphs import MemberGraph, graphs

from distarray.kernels.tasks import make
from distarray.lower.credits import Sizes, held_at_steps, peaks, with_credits
from distarray.lower.recipes import Leaf, Recipe
from distarray.lower.template import Lowered, Template


@given(graphs(), st.data())
def test_blocks_that_are_made_are_what_they_were_promised_to_be(graph: MemberGraph, data: st.DataObject) -> None:
    read = sorted({a for r in graph.recipes.values() for a in r.args if type(a) is Leaf and graph.holders[a.node]})
    made = frozenset(data.draw(st.lists(st.sampled_from(read), unique=True))) if read else frozenset()
    template = Template(graph.recipes, holders=graph.holders, lowered=Lowered(members=graph.members))
    recipes, members, blocks = template.with_making(made)
    assert sorted(blocks.values()) == sorted(made), "each once, however many read it"
    assert all(members[key] == graph.holders[leaf.node][leaf.number] for key, leaf in blocks.items())
    makers = {repr(leaf): partial(graph.blocks.__getitem__, repr(leaf)) for leaf in made}
    other = graph._replace(recipes=dict(recipes), members=dict(members), blocks={**graph.blocks, **makers})
    assert other.results() == graph.results()


def test_what_is_made_is_held_as_long_as_it_is_read() -> None:
    """A member adds up ten blocks of 100 bytes: given they are there from the start, made one after the other."""
    recipes: dict[Any, Recipe] = {}
    for n in range(10):
        recipes["dx-sum", 0, n] = Recipe("tile", len, (Leaf(0, n), *([("dx-sum", 0, n - 1)] if n else [])))
    members, holders = dict.fromkeys(recipes, 0), {0: (0,) * 10}
    template = Template(recipes, holders=holders, lowered=Lowered(members=members))
    made, places, blocks = template.with_making({Leaf(0, n) for n in range(10)})
    assert {recipe.function for key, recipe in made.items() if key in blocks} == {make}
    assert all(key[1] == 0 for key in made), "a part of the stage that reads it"
    nbytes = {key: 100 if key in blocks else 1 for key in made}
    sizes = Sizes(nbytes, nbytes)
    for ahead in (0, 2):
        programs = with_credits(made, places, [("dx-sum", 0, 9)], holders, ahead)
        assert peaks(held_at_steps(programs, sizes, {}, 1)) == {0: 100 * (1 + ahead) + 2}
