"""Credits: programs that end in every order of events, and hold no more than was known before they ran."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from member_graphs import MemberGraph, Sized, graphs

from distarray.lower.credits import Sizes, held_at_steps, peaks, with_credits
from distarray.lower.member_programs import MemberProgram
from distarray.lower.recipes import Leaf, Recipe
from distarray.lower.step_graph import SlotRef


class Member:
    """What one member has done of its program, one step at a time."""

    def __init__(self, program: MemberProgram, blocks: list[int]) -> None:
        self.program = program
        self.slots: dict[int, Any] = dict(enumerate(blocks))
        self.begun = -1
        self.n_run = 0
        self.left: set[tuple[int, int]] = set()
        self.most = 0

    def n_left(self) -> int:
        """Return how many of the messages that are awaited in turn have left."""
        assert self.program.credits is not None
        sends = self.program.credits.sends
        return next((n for n, sent in enumerate(sends) if sent not in self.left), len(sends))

    def can_begin(self) -> bool:
        return self.begun < self.n_run < len(self.program.steps)

    def can_run(self) -> bool:
        if self.begun != self.n_run:
            return False
        assert self.program.credits is not None
        reads = [a.number for a in self.program.steps[self.begun].args if type(a) is SlotRef]
        return all(s in self.slots for s in reads) and self.n_left() >= self.program.credits.awaited[self.begun]

    def run(self) -> None:
        step = self.program.steps[self.begun]
        args = [self.slots[a.number] if type(a) is SlotRef else a for a in step.args]
        self.slots[self.program.first_step + self.begun] = step.function(*args)
        self.note()
        self.n_run += 1
        self.let_go()

    def let_go(self) -> None:
        """Drop what no step to come reads, nobody is still sent, and is not kept."""
        needed = {a.number for step in self.program.steps[self.n_run :] for a in step.args if type(a) is SlotRef}
        needed |= {*self.program.results.values(), *range(len(self.program.given))}
        for slot, (number, members) in self.program.sent.items():
            if any((number, m) not in self.left for m in members):
                needed.add(slot)
        self.slots = {slot: value for slot, value in self.slots.items() if slot in needed}
        self.note()

    def note(self) -> None:
        held = [v.nbytes for slot, v in self.slots.items() if slot >= len(self.program.given) and isinstance(v, Sized)]
        self.most = max(self.most, sum(held))


@given(graphs(), st.integers(0, 4), st.randoms(use_true_random=False))
def test_in_every_order_of_events_all_ends_and_fits(graph: MemberGraph, ahead: int, rng: random.Random) -> None:
    programs = with_credits(graph.recipes, graph.members, graph.keep, graph.holders, ahead)
    given_away = {n: 0 for p in programs.values() for n, _ in p.sent.values()}
    known = peaks(held_at_steps(programs, graph.sizes(), given_away, 1))
    team = {m: Member(p, graph.given(p.given)) for m, p in programs.items()}
    granted: set[tuple[int, int]] = set()
    while True:
        events: list[Any] = [("begin", m) for m, member in team.items() if member.can_begin()]
        events += [("run", m) for m, member in team.items() if member.can_run()]
        for m, member in team.items():
            for slot, (number, receivers) in member.program.sent.items():
                due = [to for to in receivers if (number, to) in granted and (number, to) not in member.left]
                events += [("send", m, slot, number, to) for to in due if slot in member.slots]
        if not events:
            break
        kind, m, *rest = rng.choice(events)
        member = team[m]
        if kind == "begin":
            member.begun += 1
            assert member.program.credits is not None
            granted |= {(number, m) for number, _ in member.program.credits.granted[member.begun]}
        elif kind == "run":
            member.run()
        else:
            slot, number, to = rest
            place = len(programs[to].given) + programs[to].received.index(number)
            team[to].slots[place] = member.slots[slot]
            team[to].note()
            member.left.add((number, to))
            member.let_go()
    assert all(member.n_run == len(member.program.steps) for member in team.values()), "no program waits for ever"
    assert all(
        member.n_left() == len(member.program.credits.sends) for member in team.values() if member.program.credits
    )
    found = {key: member.slots[slot] for member in team.values() for key, slot in member.program.results.items()}
    assert found == graph.results(has_waits=False)
    for m, member in team.items():
        assert member.most <= known[m]


def test_a_pipe_holds_as_many_messages_as_it_is_ahead() -> None:
    """One member makes ten values, another reads one after the other: with credits it has few at a time."""
    recipes, members = {}, {}
    for n in range(10):
        recipes["dx-make", 0, n] = Recipe("piece", len, (Leaf(0, 0),))
        recipes["dx-read", 1, n] = Recipe("tile", len, (("dx-make", 0, n),))
        members |= {("dx-make", 0, n): 0, ("dx-read", 1, n): 1}
    sizes = Sizes(dict.fromkeys(recipes, 100), dict.fromkeys(recipes, 100))
    for ahead in (0, 1, 3):
        found = peaks(held_at_steps(with_credits(recipes, members, [], {0: (0,)}, ahead), sizes, {}, 1))
        # One has what it makes, and what it made ahead, which leaves as late; the other what it makes and reads, and
        # what came ahead.
        assert found == {0: 100 + 2 * ahead * 100, 1: 100 + (1 + ahead) * 100}


def test_a_block_that_steps_fill_one_after_the_other_counts_once() -> None:
    """A member receives ten parts of a block of 1000 bytes, and fills them in; what another one does is left out."""
    recipes: dict[Any, Recipe] = {}
    members = {}
    for n in range(10):
        before = [("dx-fill", 1, n - 1)] if n else []
        recipes["dx-part", 0, n] = Recipe("piece", len, (Leaf(0, 0),))
        recipes["dx-fill", 1, n] = Recipe("tile", len, (("dx-part", 0, n), *before))
        members |= {("dx-part", 0, n): 0, ("dx-fill", 1, n): 1}
    recipes["dx-other", 2, 0] = Recipe("tile", len, (("dx-fill", 1, 9),))
    members["dx-other", 2, 0] = 1
    nbytes = {"dx-part": 100, "dx-fill": 1000, "dx-other": 7}
    results = {key: nbytes[key[0]] for key in recipes}
    needs = {key: 0 if key[0] == "dx-fill" and key[2] else n for key, n in results.items()}
    programs = with_credits(recipes, members, [("dx-other", 2, 0)], {0: (0,)}, 1)
    sizes = Sizes(results, needs)
    assert peaks(held_at_steps(programs, sizes, {}, 1)) == {0: 300, 1: 1200}
    filled = {key for key in recipes if key[0] == "dx-fill"}
    assert peaks(held_at_steps(programs, sizes, {}, 1, filled)) == {0: 0, 1: 1200}
    assert peaks(held_at_steps(programs, sizes, {}, 1, {("dx-other", 2, 0)})) == {0: 0, 1: 7}
