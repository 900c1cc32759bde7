"""Credits: when the programs of a run let messages come, so that no member holds more than is known before it runs.

The tasks of all members are brought into one order by *turns* (`lower.turns`). With credits a program begins its steps
strictly in this order, and a message is sent when its receiver grants it: so many turns ahead of the first step that
reads it. The sender keeps the value until then, and goes on only so far: before a step it waits for those of its
messages that would have left so many turns ago if all steps of all members ran one after the other. Thus what a member
holds at each step is known (`peaks`), however fast the others are.

None waits for ever. Of all steps that have not run take the first in the order of all: what it reads was made by steps
before it and granted at the latest by itself, and messages that its member waits for were granted by steps before it.
So it can run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from distarray.lower.bundling import BundleSpec
from distarray.lower.member_programs import Credits, MemberProgram, member_programs
from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, Recipe
from distarray.lower.turns import in_turns, n_members_of, round_of


class Sizes(NamedTuple):
    """A Sizes says how many bytes the tasks of a template need.

    Parameters
    ----------
    results
        Of what each task makes.
    needs
        That it needs while it runs, its result included if that is new.
    coming
        What it counts with where it is received, if that is less: parts of which nobody knows before how large each is,
        but all of them together.
    """

    results: Mapping[Key, int]
    needs: Mapping[Key, int]
    coming: Mapping[Key, int] = MappingProxyType({})


class Programs(NamedTuple):
    """A Programs is the form in which a template runs as one program of each member.

    Parameters
    ----------
    by_member
        The programs.
    ahead
        Turns that messages come ahead; None if they come as they are made.
    peak
        By member the most bytes that it will hold, what lies there before included; empty where that is no matter.
    made
        Blocks that others promised, and that the programs make (`lower.template`).
    """

    by_member: Mapping[int, MemberProgram]
    ahead: int | None
    peak: Mapping[int, int]
    made: frozenset[Leaf] = frozenset()

    @property
    def form(self) -> tuple[int | None, frozenset[Leaf]]:
        """Return what tells them from other programs of their template."""
        return self.ahead, self.made


def with_credits(
    recipes: Mapping[Key, Recipe],
    members: Mapping[Key, int],
    keep: Collection[Key],
    holders: Mapping[int, tuple[int, ...]],
    ahead: int,
    bundles: Mapping[Key, BundleSpec] = MappingProxyType({}),
) -> dict[int, MemberProgram]:
    """Return the program of each member, whose messages come so many turns before the first step that reads them.

    Parameters
    ----------
    recipes, members, keep, holders, bundles
        As for `member_programs`. What tasks wait for is left out, since turns see to it.
    """
    recipes = {key: recipe._replace(waits=()) for key, recipe in recipes.items()}
    turns = in_turns(recipes, members, ahead)
    programs = member_programs({key: recipes[key] for key in turns}, members, keep, holders, bundles)
    order = {key: n for n, key in enumerate(turns)}
    in_turn = list(turns.values())
    senders = {number: member for member, program in programs.items() for number, _ in program.sent.values()}
    n_members = n_members_of(programs)
    granted: dict[int, list[list[tuple[int, int]]]] = {}
    #: By message and receiver the place, in the order of all steps, of the step that grants it.
    places: dict[tuple[int, int], int] = {}
    for member, program in programs.items():
        own = [turns[step.key] for step in program.steps]
        granted[member] = [[] for _ in program.steps]
        for number, slot in program.received_slots.items():
            n = bisect_left(own, own[program.graph.readers[slot][0]] - ahead)
            granted[member][n].append((number, senders[number]))
            places[number, member] = order[program.steps[n].key]
        for messages in granted[member]:
            messages.sort(key=lambda message: round_of(message[1], member, n_members))
    found = {}
    for member, program in programs.items():
        over = []
        for slot, (number, receivers) in program.sent.items():
            made = order[program.steps[slot - program.first_step].key] if slot >= program.first_step else -1
            over += [(max(made, places[number, to]), number, to) for to in receivers]
        over.sort()
        ends = [place for place, _, _ in over]
        # By step the place of the first step of all so many turns before it.
        before = [bisect_left(in_turn, turns[step.key] - ahead) for step in program.steps]
        awaited = tuple([bisect_left(ends, place) for place in before])
        sends = tuple([(number, to) for _, number, to in over])
        found[member] = replace(program, credits=Credits(tuple(map(tuple, granted[member])), sends, awaited))
    return found


def held_at_steps(
    programs: Mapping[int, MemberProgram],
    sizes: Sizes,
    given: Mapping[int, int],
    n_threads: int,
    of: Collection[Key] | None = None,
) -> dict[int, list[int]]:
    """Return the most bytes that each program with credits holds while each of its steps runs, beside what it is given.

    Parameters
    ----------
    programs
        All those of a run.
    given
        Bytes of what is sent as it was given, by message.
    n_threads
        Steps of a program that run at a time.
    of
        Tasks of which alone it is to be known: what they make, and the messages that they read. None: all.
    """
    nbytes = dict(given)
    for program in programs.values():
        for slot, (number, _) in program.sent.items():
            if slot >= program.first_step:
                key = program.steps[slot - program.first_step].key
                nbytes[number] = sizes.coming.get(key, sizes.results[key])
    return {member: _held(program, sizes, nbytes, n_threads, of) for member, program in programs.items()}


def peaks(held: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return the most bytes that each program holds at any time, of what it holds at its steps."""
    return {member: max(nbytes, default=0) for member, nbytes in held.items()}


def _held(
    program: MemberProgram, sizes: Sizes, nbytes: Mapping[int, int], n_threads: int, of: Collection[Key] | None
) -> list[int]:
    """Return the bytes that a program holds while so many of its steps run, the last of them each in turn."""
    assert program.credits is not None
    n_steps = len(program.steps)
    changes = [0] * (n_steps + 1)

    def holds(size: int, first: int, last: int) -> None:
        """Note what is there from the begin of a step until another one has ended."""
        if first < n_steps:
            changes[first] += size
            changes[min(last + n_threads, n_steps)] -= size

    readers = program.graph.readers
    own = [of is None or step.key in of for step in program.steps]
    read = {slot for reads, is_own in zip(program.graph.reads, own) if is_own for slot in reads}
    grants = {number: n for n, granted in enumerate(program.credits.granted) for number, _ in granted}
    for number, slot in program.received_slots.items():
        if slot in read:
            holds(nbytes[number], grants[number], readers[slot][-1])
    over: defaultdict[int, int] = defaultdict(int)  # by message the first step at which all receivers have it
    for k, (number, _) in enumerate(program.credits.sends):
        over[number] = max(over[number], bisect_right(program.credits.awaited, k))
    kept = program.kept_slots()
    for n, step in enumerate(program.steps):
        slot = program.first_step + n
        end = n_steps if slot in kept else max(readers[slot], default=n)
        if slot in program.sent:
            end = max(end, over[program.sent[slot][0]] - 1)
        # What fills more of the block of an argument has that block from when the argument is read no more.
        holds(sizes.results[step.key] * own[n], n + n_threads, end)
    needs: Sequence[int] = [sizes.needs[step.key] * own[n] for n, step in enumerate(program.steps)]
    running = [sum(needs[max(0, n + 1 - n_threads) : n + 1]) for n in range(n_steps)]
    return [held + run for held, run in zip(accumulate(changes), running)]
