"""The steps of a program, and what they wait for: made once of a program, for all runs of it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from distarray.lower.messages import Key
from distarray.lower.parameters import Filler, Parameters, varies


class SlotRef(NamedTuple):
    """A SlotRef stands, among the arguments of a step, for the value in that slot of the program."""

    number: int


class KernelCall(NamedTuple):
    """A KernelCall is one step of a program: a call of a kernel, with slots among its arguments.

    Parameters
    ----------
    key
        Of the task that it was: it names the stage, for errors and measurements.
    """

    key: Key
    function: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(eq=False)
class StepGraph:
    """A StepGraph says what the steps of a program wait for, and who needs what they make.

    The slots of a program are numbered: first the blocks that it is given, then what it receives, if it is one of
    several, then what each step makes.

    Parameters
    ----------
    steps
        In an order in which they can run.
    n_given
        The blocks that it is given: they are there before any step.
    first
        The slot of what the first step makes.
    kept
        Slots that stay, each as often as something keeps it.
    after
        By step those before it that it waits for although it reads nothing of them.
    """

    steps: Sequence[KernelCall]
    n_given: int
    first: int
    kept: Collection[int]
    after: Mapping[int, Collection[int]] = field(default_factory=dict)

    # Without the tables, which are larger than the steps.
    def __reduce__(self) -> tuple[Any, ...]:
        return StepGraph, (self.steps, self.n_given, self.first, self.kept, self.after)

    @cached_property
    def reads(self) -> list[tuple[int, ...]]:
        """Return by step the slots that it reads, each once."""
        return [tuple({a.number: None for a in step.args if type(a) is SlotRef}) for step in self.steps]

    @cached_property
    def readers(self) -> list[list[int]]:
        """Return by slot the steps that wait for it; none where it is given."""
        found: list[list[int]] = [[] for _ in range(self.first + len(self.steps))]
        for n, reads in enumerate(self.reads):
            for slot in reads:
                if slot >= self.n_given:
                    found[slot].append(n)
        for n, waits in self.after.items():
            for slot in {self.first + before for before in waits}.difference(self.reads[n]):
                insort(found[slot], n)
        return found

    @cached_property
    def missing(self) -> list[int]:
        """Return by step how many slots it waits for."""
        found = [0] * len(self.steps)
        for readers in self.readers:
            for n in readers:
                found[n] += 1
        return found

    @cached_property
    def ready(self) -> list[int]:
        """Return the steps that wait for nothing."""
        return [n for n, missing in enumerate(self.missing) if not missing]

    @cached_property
    def uses(self) -> list[int]:
        """Return by slot how many steps read it, or keep it: at no use it is empty."""
        found = [0] * (self.first + len(self.steps))
        for slot in (*[slot for reads in self.reads for slot in reads], *self.kept):
            found[slot] += 1
        return found

    @cached_property
    def freed(self) -> list[tuple[int, ...]]:
        """Return by step the slots that nobody reads any more after it, if steps run in their order."""
        last = {slot: n for n, reads in enumerate(self.reads) for slot in (*reads, self.first + n)}
        found: list[list[int]] = [[] for _ in self.steps]
        for slot in last.keys() - self.kept:
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
