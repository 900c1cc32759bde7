"""The program of a process: the tasks of all members that are its threads, as the steps of one program.

In one process nothing is sent: what one step makes is in the memory of all others. So the tasks of a template are one
list of steps over one list of slots, and what waits for what is counted once for all runs of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from distarray.lower.member_programs import member_programs
from distarray.lower.messages import Key
from distarray.lower.recipes import ClientBox, Leaf, Recipe
from distarray.lower.step_graph import KernelCall, StepGraph


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
    def graph(self) -> StepGraph:
        """Return what its steps wait for, found once for all its runs."""
        n_given = len(self.given)
        return StepGraph(self.steps, n_given, n_given, self.results.values(), self.after)


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
