"""Member programs: all that one member does in one submission, as one list of steps.

Tasks that read each other's results across members are cut into one program per member. What a task reads of another
member is a message there: the program that makes a value, or has it from before, sends it as soon as it is there, and
the other one receives it into a slot. The order of steps is the order of the tasks, which is one in which they can
run; so of all programs of a run there is always a step that can run next, and none waits for ever.

A program is cut once of a template and serves all its runs: `MemberProgram.filled` fills in the parameters of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from distarray.lower.bundling import BundleSpec
from distarray.lower.messages import Key
from distarray.lower.parameters import Parameters
from distarray.lower.recipes import ClientBox, Leaf, Recipe, is_key, named
from distarray.lower.step_graph import KernelCall, SlotRef, StepGraph
from distarray.lower.turns import n_members_of, round_of

#: What a task reads: what another one makes, a block from before, or data of this process.
Ref: TypeAlias = Key | Leaf | ClientBox


class Credits(NamedTuple):
    """A Credits says when a program lets messages come, and how far it goes while its own have not left (`credits`).

    Parameters
    ----------
    granted
        By step the messages that it grants when it is begun, and the members that send them.
    sends
        The messages that the program sends, and to whom, in the order in which they are awaited.
    awaited
        By step how many of these must have left before it runs.
    """

    granted: tuple[tuple[tuple[int, int], ...], ...]
    sends: tuple[tuple[int, int], ...]
    awaited: tuple[int, ...]


@dataclass(slots=True)
class MemberProgram:
    """A MemberProgram is all that one member does in a run; or a process, whose members are threads.

    Its slots are numbered: first the blocks that it is given, then what it receives, then what each step makes.

    Parameters
    ----------
    given
        What it is given: blocks from before, and boxes of data of this process.
    received
        Numbers of the messages that it receives.
    steps
        In an order in which they can run.
    sent
        By slot, to which members its value goes, and the number of the message.
    results
        Keys of blocks that are kept, without the name of a run, and the slot of each.
    bundles
        Keys of bundles that are kept, and of each the slots of its blocks, or these themselves.
    credits
        When messages may come; None if that is no matter.
    members
        Of the program of a process, by step the rank of the member that it is a task of.
    after
        Likewise, by step those before it that it waits for although it reads nothing of them.
    """

    given: list[Leaf | ClientBox] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    steps: list[KernelCall] = field(default_factory=list)
    sent: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    results: dict[Key, int] = field(default_factory=dict)
    bundles: dict[Key, tuple[Any, ...]] = field(default_factory=dict)
    credits: Credits | None = None
    members: Sequence[int] = ()
    after: Mapping[int, Collection[int]] = field(default_factory=dict)
    _graph: StepGraph | None = field(default=None, repr=False, compare=False)

    @property
    def first_step(self) -> int:
        """Return the slot of what the first step makes."""
        return len(self.given) + len(self.received)

    @property
    def received_slots(self) -> dict[int, int]:
        """Return by message that it receives the slot of that."""
        return {number: len(self.given) + n for n, number in enumerate(self.received)}

    @property
    def kept_keys(self) -> list[Key]:
        """Return the keys of what is kept, in the order in which the program returns it."""
        return [*self.results, *self.bundles]

    @property
    def graph(self) -> StepGraph:
        """Return what its steps wait for, found once for all its runs."""
        if self._graph is None:
            self._graph = StepGraph(self.steps, len(self.given), self.first_step, self.kept_slots(), self.after)
        return self._graph

    def kept_slots(self) -> set[int]:
        """Return the slots of all blocks that are kept."""
        bundled = [a.number for blocks in self.bundles.values() for a in blocks if type(a) is SlotRef]
        return {*self.results.values(), *bundled}

    def others(self) -> set[int]:
        """Return the members to which it sends messages, or grants some."""
        found = {member for _, members in self.sent.values() for member in members}
        if self.credits is not None:
            found.update(member for granted in self.credits.granted for _, member in granted)
        return found

    def filled(self, parameters: Parameters, run: str) -> MemberProgram:
        """Return the program of one run, with its name and its parameters in the steps."""
        steps = self.graph.filled(parameters)
        steps = [KernelCall(named(key, run), function, args) for key, function, args in steps]
        return replace(self, steps=steps)


def member_programs(
    recipes: Mapping[Key, Recipe],
    members: Mapping[Key, int],
    keep: Collection[Key],
    holders: Mapping[int, tuple[int, ...]],
    bundles: Mapping[Key, BundleSpec] = MappingProxyType({}),
) -> dict[int, MemberProgram]:
    """Return the program of each member that has something to do.

    Parameters
    ----------
    recipes
        Tasks, in an order in which they can run.
    members
        Rank of each task's member.
    keep
        Keys of the results that stay.
    holders
        By number of a node the members that have its blocks; those of other nodes are given to whoever reads them.
    bundles
        What is kept of several blocks under one key.
    """
    flows = _Flows(members, holders)
    for key, recipe in recipes.items():
        for argument in (*recipe.args, *recipe.waits):
            if _is_ref(argument):
                flows.read(argument, members[key])
    for member, refs in bundles.values():
        for ref in refs:
            if type(ref) is Leaf:
                flows.read(ref, member)
    programs: defaultdict[int, MemberProgram] = defaultdict(MemberProgram)
    slots: dict[tuple[int, Any], int] = {}
    for member, given in flows.given.items():
        programs[member].given = list(given.values())
        slots.update({(member, name): n for n, name in enumerate(given)})
    numbers: dict[Any, int] = {}
    for member, names in flows.received.items():
        program = programs[member]
        for name in names:
            slots[member, name] = program.first_step
            program.received.append(numbers.setdefault(name, len(numbers)))
    for key, recipe in recipes.items():
        member, program = members[key], programs[members[key]]
        slots[member, key] = program.first_step + len(program.steps)
        args = [SlotRef(slots[member, _name(a)]) if _is_ref(a) else a for a in (*recipe.args, *recipe.waits)]
        program.steps.append(KernelCall(key, recipe.function, tuple(args)))
    n_members = n_members_of(members.values(), programs)
    for name, destinations in flows.sent.items():
        source = flows.owners[name]
        assert source is not None, "only what a member has is sent"
        in_rounds = sorted(destinations, key=partial(round_of, source, n_members=n_members))
        programs[source].sent[slots[source, name]] = numbers[name], in_rounds
    for key in keep:
        programs[members[key]].results[key] = slots[members[key], key]
    for key, (member, refs) in bundles.items():
        blocks = [SlotRef(slots[member, _name(ref)]) if _is_ref(ref) else ref for ref in refs]
        programs[member].bundles[key] = tuple(blocks)
    return dict(programs)


def process_program(
    recipes: Mapping[Key, Recipe],
    members: Mapping[Key, int],
    keep: Collection[Key],
    after: Mapping[Key, Collection[Key]],
) -> MemberProgram:
    """Return the tasks of all members as one program of a process, of which they are threads.

    There nothing is sent: what one step makes is in the memory of all others.

    Parameters
    ----------
    after
        By key of a task those that it waits for although it reads nothing of them.
    """
    if not recipes:
        return MemberProgram()
    (program,) = member_programs(recipes, dict.fromkeys(recipes, 0), keep, {}).values()
    number = {key: n for n, key in enumerate(recipes)}
    program.members = [members[key] for key in recipes]
    program.after = {number[key]: [number[k] for k in waits] for key, waits in after.items()}
    return program


def _is_ref(argument: Any) -> bool:
    kind = type(argument)
    return kind is Leaf or kind is ClientBox or (kind is tuple and is_key(argument))


def _name(ref: Ref) -> Any:
    """Return a hashable name of what is read."""
    return repr(ref) if type(ref) is ClientBox else ref


class _Flows:
    """A _Flows notes what each member is given, what it receives, and what is sent; in dicts, for their order."""

    def __init__(self, members: Mapping[Key, int], holders: Mapping[int, tuple[int, ...]]) -> None:
        self._members = members
        self._holders = holders
        self.owners: dict[Any, int | None] = {}
        self.given: defaultdict[int, dict[Any, Leaf | ClientBox]] = defaultdict(dict)
        self.received: defaultdict[int, dict[Any, None]] = defaultdict(dict)
        self.sent: defaultdict[Any, dict[int, None]] = defaultdict(dict)

    def read(self, ref: Ref, member: int) -> None:
        """Note that a task of a member reads this."""
        name = _name(ref)
        if name not in self.owners:
            self.owners[name] = self._owner(ref)
        owner = self.owners[name]
        if isinstance(ref, (Leaf, ClientBox)):
            self.given[member if owner is None else owner][name] = ref
        if owner is not None and owner != member:
            self.received[member][name] = None
            self.sent[name][member] = None

    def _owner(self, ref: Ref) -> int | None:
        """Return the member that makes something, or has it from before; None if it is given to all readers."""
        if type(ref) is ClientBox:
            return None
        if isinstance(ref, Leaf):
            held = self._holders.get(ref.node)
            return held[ref.number] if held else None
        return self._members[ref]
