"""The program of a process: the tasks of all members that are its threads, as the steps of one program.

In one process nothing is sent: what one step makes is in the memory of all others. So the tasks of a template are one
list of steps over one list of slots, and what waits for what is counted once for all runs of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from distarray.lower.member_programs import KernelCall, SlotRef, member_programs
from distarray.lower.messages import Key
from distarray.lower.parameters import Filler, Parameters, varies
from distarray.lower.recipes import ClientBox, Leaf, Recipe


@dataclass(eq=False)
class ProcessProgram:
    """A ProcessProgram is all that one process does in a run.

    Its slots are numbered: first the blocks that it is given, then what each step makes.

    Parameters
    ----------
    given
        What it is given: blocks from before, and boxes of data of this process.
    steps
        In an order in which they can run.
    members
        By step the rank of the member that it is a task of.
    results
        Keys of what is kept, without the name of a run, and the slot of each.
    after
        By step those before it that it waits for although it reads nothing of them.
    """

    given: Sequence[Leaf | ClientBox] = ()
    steps: Sequence[KernelCall] = ()
    members: Sequence[int] = ()
    results: Mapping[Key, int] = field(default_factory=dict)
    after: Mapping[int, Collection[int]] = field(default_factory=dict)

    @cached_property
    def reads(self) -> list[tuple[int, ...]]:
        """Return by step the slots that it reads, each once."""
        return [tuple({a.number: None for a in step.args if type(a) is SlotRef}) for step in self.steps]

    @cached_property
    def readers(self) -> list[list[int]]:
        """Return by step those that wait for it."""
        first = len(self.given)
        found: list[list[int]] = [[] for _ in self.steps]
        for n, reads in enumerate(self.reads):
            for before in {slot - first for slot in reads if slot >= first}.union(self.after.get(n, ())):
                found[before].append(n)
        return found

    @cached_property
    def missing(self) -> list[int]:
        """Return by step how many others it waits for."""
        found = [0] * len(self.steps)
        for readers in self.readers:
            for n in readers:
                found[n] += 1
        return found

    @cached_property
    def uses(self) -> list[int]:
        """Return by slot how many steps read it, or keep it: at no use it is empty."""
        found = [0] * (len(self.given) + len(self.steps))
        for slot in (*[slot for reads in self.reads for slot in reads], *self.results.values()):
            found[slot] += 1
        return found

    @cached_property
    def freed(self) -> list[tuple[int, ...]]:
        """Return by step the slots that nobody reads any more after it, if steps run in their order."""
        last = {slot: n for n, reads in enumerate(self.reads) for slot in (*reads, len(self.given) + n)}
        found: list[list[int]] = [[] for _ in self.steps]
        for slot in last.keys() - self.results.values():
            found[last[slot]].append(slot)
        return list(map(tuple, found))

    def filled(self, parameters: Parameters) -> list[KernelCall]:
        """Return the steps of one run, with its parameters."""
        fill, steps = Filler(parameters), list(self.steps)
        for n, places in self._varying:
            args = list(steps[n].args)
            for place in places:
                args[place] = fill(args[place])
            steps[n] = steps[n]._replace(args=tuple(args))
        return steps

    @cached_property
    def _varying(self) -> list[tuple[int, list[int]]]:
        """Return the steps whose arguments vary from run to run, and which of these do."""
        found = [(n, [i for i, a in enumerate(step.args) if varies(a)]) for n, step in enumerate(self.steps)]
        return [(n, places) for n, places in found if places]


def process_program(
    recipes: Mapping[Key, Recipe],
    members: Mapping[Key, int],
    keep: Collection[Key],
    after: Mapping[Key, Collection[Key]],
) -> ProcessProgram:
    """Return the program of a process.

    Parameters
    ----------
    recipes
        Tasks, in an order in which they can run.
    members
        Rank of each task's member.
    keep
        Keys of the results that stay.
    after
        By key of a task those that it waits for although it reads nothing of them.
    """
    if not recipes:
        return ProcessProgram()
    (program,) = member_programs(recipes, dict.fromkeys(recipes, 0), keep, {}).values()
    number = {key: n for n, key in enumerate(recipes)}
    return ProcessProgram(
        program.given,
        program.steps,
        [members[key] for key in recipes],
        program.results,
        {number[key]: [number[k] for k in waits] for key, waits in after.items()},
    )
