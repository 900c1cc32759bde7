"""Member programs: all that one member does in one submission, as one list of steps.

Tasks that read each other's results across members are cut into one program per member. What a task reads of another
member is a message there: the program that makes a value, or has it from before, sends it as soon as it is there, and
the other one receives it into a slot. The order of steps is the order of the tasks, which is one in which they can
run; so of all programs of a run there is always a step that can run next, and none waits for ever.

Nothing here knows Dask: tasks are anything with a function, arguments and the keys of what they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from distarray.lower.messages import Key

__all__ = ["MemberProgram", "SlotRef", "KernelCall", "has_messages", "member_programs"]


class TaskLike(Protocol):
    """A TaskLike is a function with arguments, some of which stand for what other tasks make."""

    @property
    def func(self) -> Callable[..., Any]: ...
    @property
    def args(self) -> tuple[Any, ...]: ...


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


@dataclass(slots=True)
class MemberProgram:
    """A MemberProgram is all that one member does in a run.

    Its slots are numbered: first the blocks that it is given, then what it receives, then what each step makes.

    Parameters
    ----------
    given
        Keys of the blocks that it is given.
    received
        Numbers of the messages that it receives.
    steps
        In an order in which they can run.
    sent
        By slot, to which members its value goes, and the number of the message.
    results
        Keys of what is kept, and the slot of each.
    """

    given: list[Key] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    steps: list[KernelCall] = field(default_factory=list)
    sent: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    results: dict[Key, int] = field(default_factory=dict)

    @property
    def first_step(self) -> int:
        """Return the slot of what the first step makes."""
        return len(self.given) + len(self.received)


def has_messages(tasks: Mapping[Key, Any], members: Mapping[Key, int]) -> bool:
    """Return whether a task reads what a task of another member makes; not if some are bound to no member."""
    if not all(key in members for key in tasks):
        return False
    return any(
        members[read] != members[key] for key, task in tasks.items() for read in task.dependencies if read in tasks
    )


def member_programs(
    tasks: Mapping[Key, TaskLike],
    members: Mapping[Key, int],
    keep: Collection[Key],
    read_of: Callable[[Any], Key | None],
    holder_of: Callable[[Key], int | None],
) -> dict[int, MemberProgram]:
    """Return the program of each member that has something to do.

    Parameters
    ----------
    tasks
        In an order in which they can run.
    members
        Rank of each task's member.
    keep
        Keys of the results that stay.
    read_of
        Returns the key that an argument stands for; None for what is an argument itself.
    holder_of
        Returns the member that has a block from before; None where it is to be given to whoever reads it.
    """
    made = _Flows(members, holder_of)
    reads: dict[Key, list[Key | None]] = {}
    for key, task in tasks.items():
        reads[key] = [read_of(a) for a in task.args]
        for read in reads[key]:
            if read is not None:
                made.read(read, members[key], is_task=read in tasks)
    programs: defaultdict[int, MemberProgram] = defaultdict(MemberProgram)
    slots: dict[tuple[int, Key], int] = {}
    for member, keys in made.given.items():
        programs[member].given = list(keys)
        slots.update({(member, key): n for n, key in enumerate(keys)})
    numbers: dict[Key, int] = {}
    for member, keys in made.received.items():
        program = programs[member]
        for key in keys:
            slots[member, key] = program.first_step
            program.received.append(numbers.setdefault(key, len(numbers)))
    for key, task in tasks.items():
        member, program = members[key], programs[members[key]]
        slots[member, key] = program.first_step + len(program.steps)
        args = [a if r is None else SlotRef(slots[member, r]) for a, r in zip(task.args, reads[key], strict=True)]
        program.steps.append(KernelCall(key, task.func, tuple(args)))
    for key, destinations in made.sent.items():
        source = made.owner(key)
        programs[source].sent[slots[source, key]] = numbers[key], list(destinations)
    for key in keep:
        programs[members[key]].results[key] = slots[members[key], key]
    return dict(programs)


class _Flows:
    """Notes, task by task, what each member is given, what it receives, and what is sent; dicts, for their order."""

    def __init__(self, members: Mapping[Key, int], holder_of: Callable[[Key], int | None]) -> None:
        self._members = members
        self._holder_of = holder_of
        self._owners: dict[Key, int | None] = {}
        self.given: defaultdict[int, dict[Key, None]] = defaultdict(dict)
        self.received: defaultdict[int, dict[Key, None]] = defaultdict(dict)
        self.sent: defaultdict[Key, dict[int, None]] = defaultdict(dict)

    def owner(self, key: Key) -> int:
        found = self._owners[key]
        assert found is not None, "only what a member has is sent"
        return found

    def read(self, key: Key, member: int, *, is_task: bool) -> None:
        if key not in self._owners:
            self._owners[key] = self._members[key] if is_task else self._holder_of(key)
        owner = self._owners[key]
        if not is_task:
            self.given[member if owner is None else owner][key] = None
        if owner is not None and owner != member:
            self.received[member][key] = None
            self.sent[key][member] = None
