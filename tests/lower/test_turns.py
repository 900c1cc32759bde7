"""Turns and rounds: an order in which tasks can run, and in which no member is sent everything at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from member_graphs import MemberGraph, graphs, template_of

from distarray.lower.turns import in_turns, round_of


@settings(max_examples=100, deadline=None)
@given(graphs(), st.none() | st.integers(0, 3))
def test_tasks_can_run_in_the_order_of_their_turns(graph: MemberGraph, ahead: int | None) -> None:
    turns = in_turns(graph.recipes, graph.members, ahead)
    assert turns.keys() == graph.recipes.keys() and list(turns.values()) == sorted(turns.values())
    places = {key: n for n, key in enumerate(turns)}
    for key, recipe in graph.recipes.items():
        assert all(places[k] < places[key] for k in recipe.reads())
    tiles = [(graph.members[key], turn) for key, turn in turns.items() if graph.recipes[key].kind == "tile"]
    assert len(set(tiles)) == len(tiles), "a tile of a member in each turn"


@pytest.mark.parametrize("ahead", [None, 0, 2])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_in_each_round_a_member_is_sent_something_by_one_other(n: int, ahead: int | None) -> None:
    template, _ = template_of(n, lambda m: m + m.T)
    programs = template.programs if ahead is None else template.with_credits(ahead)
    sends = {m: [to for _, (_, receivers) in sorted(p.sent.items()) for to in receivers] for m, p in programs.items()}
    for k in range(n - 1):
        assert sorted(to[k] for to in sends.values()) == list(range(n))
    if ahead is not None:  # and they are granted in these rounds, too
        for member, program in programs.items():
            assert program.credits is not None
            for granted in program.credits.granted:
                rounds = [round_of(sender, member, n) for _, sender in granted]
                assert rounds == sorted(rounds)


def test_what_all_others_read_leaves_in_rounds() -> None:
    template, _ = template_of(4, lambda m: m @ (m @ m.sum(1)))
    found = {m: [to for _, to in p.sent.values() if len(to) == 3] for m, p in template.programs.items()}
    assert all(found.values())
    for member, lists in found.items():
        assert all(to == [(member + k) % 4 for k in (1, 2, 3)] for to in lists)
