"""Credits: when the programs of a run let messages come, so that no member holds more than is known before it runs.

With credits a program begins its steps strictly in order, and a message is sent when its receiver grants it: so many
steps ahead of the first that reads it. The sender keeps the value until then, and goes on only so far: before a step it
waits for those of its messages that would be over if all steps of all members ran one after the other. Thus what a
member holds at each of its steps is known (`peaks`), however fast the others are.

None waits for ever. Of all steps that have not run take the first in the order of the tasks: what it reads was made
by steps before it and granted at the latest by itself, and messages that its member waits for were granted by steps
before it. So it can run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from distarray.lower.member_programs import Credits, MemberProgram, SlotRef
from distarray.lower.messages import Key

__all__ = ["Sizes", "peaks", "with_credits"]


class Sizes(NamedTuple):
    """A Sizes says how many bytes the tasks of a template need.

    Parameters
    ----------
    results
        Of what each task makes.
    needs
        That it needs while it runs, its result included.
    """

    results: Mapping[Key, int]
    needs: Mapping[Key, int]


class _Uses(NamedTuple):
    """A _Uses says which steps of a program read each of its slots: the first and the last of them."""

    first: dict[int, int]
    last: dict[int, int]


def _uses(program: MemberProgram) -> _Uses:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for n, step in enumerate(program.steps):
        for argument in step.args:
            if type(argument) is SlotRef:
                first.setdefault(argument.number, n)
                last[argument.number] = n
    return _Uses(first, last)


def _received(program: MemberProgram) -> Iterator[tuple[int, int]]:
    """Yield the messages that a program receives, and their slots."""
    for n, number in enumerate(program.received):
        yield number, len(program.given) + n


def with_credits(programs: Mapping[int, MemberProgram], ahead: int) -> dict[int, MemberProgram]:
    """Return programs whose messages are granted so many steps ahead of the first step that reads them.

    Parameters
    ----------
    programs
        All those of a run.
    """
    orders = {member: [step.order for step in program.steps] for member, program in programs.items()}
    senders = {number: member for member, program in programs.items() for number, _ in program.sent.values()}
    granted: dict[int, list[list[tuple[int, int]]]] = {}
    #: By message and receiver the place, in the order of all steps, of the step that grants it.
    places: dict[tuple[int, int], int] = {}
    for member, program in programs.items():
        first = _uses(program).first
        granted[member] = [[] for _ in program.steps]
        for number, slot in _received(program):
            n = max(0, first[slot] - ahead)
            granted[member][n].append((number, senders[number]))
            places[number, member] = orders[member][n]
    found = {}
    for member, program in programs.items():
        over = []
        for slot, (number, receivers) in program.sent.items():
            made = orders[member][slot - program.first_step] if slot >= program.first_step else -1
            over += [(max(made, places[number, to]), number, to) for to in receivers]
        over.sort()
        ends = [place for place, _, _ in over]
        awaited = tuple([bisect_left(ends, order) for order in orders[member]])
        sends = tuple([(number, to) for _, number, to in over])
        found[member] = replace(program, credits=Credits(tuple(map(tuple, granted[member])), sends, awaited))
    return found


def peaks(
    programs: Mapping[int, MemberProgram], sizes: Sizes, given: Mapping[int, int], n_threads: int
) -> dict[int, int]:
    """Return the most bytes that each program with credits holds at any time, beside what it is given.

    Parameters
    ----------
    programs
        All those of a run.
    given
        Bytes of what is sent as it was given, by message.
    n_threads
        Steps of a program that run at a time.
    """
    nbytes = dict(given)
    for program in programs.values():
        for slot, (number, _) in program.sent.items():
            if slot >= program.first_step:
                nbytes[number] = sizes.results[program.steps[slot - program.first_step].key]
    return {member: _peak(program, sizes, nbytes, n_threads) for member, program in programs.items()}


def _peak(program: MemberProgram, sizes: Sizes, nbytes: Mapping[int, int], n_threads: int) -> int:
    """Return the most bytes that a program holds while so many of its steps run, the last of them each in turn."""
    assert program.credits is not None
    n_steps = len(program.steps)
    changes = [0] * (n_steps + 1)

    def holds(size: int, first: int, last: int) -> None:
        """Note what is there from the begin of a step until another one has ended."""
        if first < n_steps:
            changes[first] += size
            changes[min(last + n_threads, n_steps)] -= size

    last = _uses(program).last
    grants = {number: n for n, granted in enumerate(program.credits.granted) for number, _ in granted}
    for number, slot in _received(program):
        holds(nbytes[number], grants[number], last[slot])
    over: defaultdict[int, int] = defaultdict(int)  # by message the first step at which all receivers have it
    for k, (number, _) in enumerate(program.credits.sends):
        over[number] = max(over[number], bisect_right(program.credits.awaited, k))
    kept = set(program.results.values())
    for n, step in enumerate(program.steps):
        slot = program.first_step + n
        end = n_steps if slot in kept else last.get(slot, n)
        if slot in program.sent:
            end = max(end, over[program.sent[slot][0]] - 1)
        holds(sizes.results[step.key], n + n_threads, end)
    needs: Sequence[int] = [sizes.needs[step.key] for step in program.steps]
    running = [sum(needs[max(0, n + 1 - n_threads) : n + 1]) for n in range(n_steps)]
    return max([held + run for held, run in zip(accumulate(changes), running)], default=0)
