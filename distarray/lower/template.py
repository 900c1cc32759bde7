"""The tasks of a plan for one geometry, as records: what lowering makes.

A loop over fixed slices lowers once: its tasks are kept as a `Template` in which blocks are named by node and tile
(`recipes.Leaf`). `runtime.instantiate` fills in what varies from run to run and makes tasks of them.

A program has all that it is given from its start. Where that is too much to be there at once, blocks that others' tasks
would make, each by tasks of its own, are made by steps: what a program is given is then how to make them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distarray.caches import collected_later
from distarray.kernels.specs import StageSpec
from distarray.kernels.tasks import make
from distarray.lower.bundling import Bundled, Given, Kept, Output, kept_of
from distarray.lower.credits import with_credits
from distarray.lower.member_programs import MemberProgram, member_programs, process_program
from distarray.lower.messages import Key, Transfer
from distarray.lower.recipes import Leaf, Recipe, TaskKind, is_key
from distarray.lower.turns import in_turns
from distarray.planner.plan import UNBOUNDED, Stage

if TYPE_CHECKING:
    from distarray.lower.records import Draft


@dataclass(slots=True)
class Lowered:
    """A Lowered is the tasks of one evaluation, with their members and with what they transfer.

    Parameters
    ----------
    tasks
        The runtime's, in an order in which they can run.
    members
        Rank of the member that runs each.
    after
        Tasks that must wait for others although they read nothing of them: writes in place wait for all readers.
    outputs
        By number of the node.
    bundle_nbytes
        See `Site.bundle`.
    transfers
        Messages between members.
    counts
        Tasks by their `TaskKind`.
    made
        By member the bytes of blocks that its tasks make.
    most_nbytes
        Bytes that a member makes, sends and receives, at most, if it never frees any.
    depth
        Tasks of the longest chain.
    has_messages
        Whether a task reads what a task of another member makes.
    drafts
        Per stage of the plan how its loops were cut and what its tiles read: what `explain` adds up.
    """

    tasks: dict[Key, Any] = field(default_factory=dict)
    members: dict[Key, int] = field(default_factory=dict)
    after: dict[Key, set[Key]] = field(default_factory=dict)
    outputs: dict[int, Output] = field(default_factory=dict)
    bundle_nbytes: int = UNBOUNDED
    transfers: list[Transfer] = field(default_factory=list)
    counts: dict[TaskKind, int] = field(default_factory=dict)
    kernels: Counter[tuple[str, Any]] = field(default_factory=Counter)
    made: Counter[int] = field(default_factory=Counter)
    most_nbytes: int = 0
    depth: int = 0
    has_messages: bool = False
    packed_bytes: int = 0
    allocated_bytes: int = 0
    drafts: list[Draft] = field(default_factory=list)


@dataclass(eq=False)
class Template:
    """A Template is the tasks of a plan for one geometry: all but blocks, scalars, late parameters and the run's name.

    A loop over fixed slices lowers once; what varies from turn to turn are `parameters`, which the runtime fills in.

    Parameters
    ----------
    specs
        The records that tasks of a stage share, by their number, and their stages.
    chains
        Tasks that are one with another, the last of them: of a member in a chain of halo stages.
    holders
        By number of a node that is there before, the members that have its blocks; nothing if it lies in this process.
    lowered
        Everything that does not vary.
    """

    recipes: dict[Key, Recipe] = field(default_factory=dict)
    specs: list[tuple[StageSpec, Stage]] = field(default_factory=list)
    chains: dict[Key, Key] = field(default_factory=dict)
    holders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    lowered: Lowered = field(default_factory=Lowered)
    _given: dict[tuple[Any, Bundled], Mapping[int, Given]] = field(default_factory=dict)

    @cached_property
    def kept(self) -> Kept:
        """Return what stays of a run as member programs, and under which keys."""
        with collected_later():
            out = self.lowered
            return kept_of(out.outputs, out.members, self.holders, out.bundle_nbytes)

    @cached_property
    def programs(self) -> dict[int, MemberProgram]:
        """Return the tasks as one program of each member, whose messages come as they are made."""
        with collected_later():
            kept, members = self.kept, self.lowered.members
            order = in_turns(self.recipes, members, None) if self.lowered.has_messages else self.recipes
            return member_programs(
                {key: self.recipes[key] for key in order}, members, kept.keys, self.holders, kept.bundles
            )

    @cached_property
    def n_saved_by_programs(self) -> int:
        """Return how many more steps there are than Dask tasks, if each member has one, beside one for each kept
        key.
        """
        members = {*self.lowered.members.values()}.union(*self.holders.values())
        n_steps = sum([len(recipe.stages(key)) for key, recipe in self.recipes.items()])
        return n_steps - len(members) - len(self.kept.all_keys)

    @cached_property
    def in_process(self) -> MemberProgram:
        """Return the tasks as one program of a process, of which members are threads."""
        outputs = self.lowered.outputs.values()
        keep = [ref for output in outputs for ref in output.refs if type(ref) is tuple and is_key(ref)]
        return process_program(self.recipes, self.lowered.members, keep, self.lowered.after)

    def given_as(self, form: Any, bundled: Bundled, find: Callable[[], Mapping[int, Given]]) -> Mapping[int, Given]:
        """Return what `find` found for programs of a form (`Programs.form`), of which some are given bundles."""
        if (form, bundled) not in self._given:
            self._given[form, bundled] = find()
        return self._given[form, bundled]

    def with_credits(self, ahead: int, made: Collection[Leaf] = ()) -> dict[int, MemberProgram]:
        """Return the tasks as one program of each member, whose messages come at most so many turns ahead, and which
        make some of the blocks that others promised.
        """
        with collected_later():
            kept = self.kept
            recipes, members, _ = self.with_making(made)
            return with_credits(recipes, members, kept.keys, self.holders, ahead, kept.bundles)

    def with_making(self, made: Collection[Leaf]) -> tuple[Mapping[Key, Recipe], Mapping[Key, int], Mapping[Key, Leaf]]:
        """Return the tasks if they make these blocks too: what a program is given of each is what `kernels.tasks.make`
        takes.

        Returns
        -------
        recipes, members
            Each block is made before its first reader, as a part of the stage of that.
        blocks
            By new key the block.
        """
        members = self.lowered.members
        if not made:
            return self.recipes, members, {}
        keys: dict[Leaf, Key] = {}
        found: dict[Key, Recipe] = {}
        places = dict(members)
        for key, recipe in self.recipes.items():
            for a in recipe.args:
                if type(a) is Leaf and a in made and a not in keys:
                    keys[a] = own = (f"dx-made{a.node}", key[1], a.number)
                    found[own] = Recipe("piece", make, (a,))
                    places[own] = self.holders[a.node][a.number]
            args = tuple([keys[a] if type(a) is Leaf and a in keys else a for a in recipe.args])
            found[key] = recipe._replace(args=args)
        return found, places, {key: leaf for leaf, key in keys.items()}
